"""Accounts of people, as administrators manage them: who there is, and what each one may do."""

from collections import defaultdict
from datetime import timedelta
from typing import Any

from allauth.mfa.models import Authenticator
from django.apps import apps
from django.contrib.auth.validators import UnicodeUsernameValidator
from django.core.exceptions import ValidationError
from django.db import IntegrityError, transaction
from django.db.models import Q, QuerySet

from apps.accounts import access, audit, services
from apps.accounts.models import Membership, User
from apps.accounts.revocation import end_access
from apps.common.clock import now
from apps.common.errors import ApiError

INVITATION_LIFETIME = timedelta(days=3)
_FLAGS = {"is_active": "active", "is_superuser": "administrator", "is_staff": "operator"}


def list_people(
    actor: User, search: str = "", *, service: bool = False, active: bool | None = None, administrator: bool = False
) -> QuerySet[User]:
    """Return people, or with `service` service accounts, for an administrator. Raises ApiError 403."""
    access.require_administrator(actor)
    rows = User.objects.filter(service_project__isnull=not service)
    if search:
        named = Q(username__icontains=search) | Q(email__icontains=search)
        rows = rows.filter(named | Q(first_name__icontains=search) | Q(last_name__icontains=search))
    if active is not None:
        rows = rows.filter(is_active=active)
    return rows.filter(is_superuser=True) if administrator else rows


def get_person(actor: User, username: str) -> User:
    """Return the account. Raises ApiError 403 for anybody but an administrator, 404 for an unknown name."""
    access.require_administrator(actor)
    found = User.objects.filter(username=username).first()
    if found is None:
        raise ApiError(404, "NOT_FOUND")
    return found


def serialize_people(people: list[User]) -> list[dict[str, Any]]:
    """Return the accounts with their roles and ways to sign in; four queries for any number of them."""
    keys = [person.pk for person in people]
    roles = defaultdict(list)
    for row in Membership.objects.filter(user__in=keys).select_related("project").order_by("project__name"):
        roles[row.user_id].append(
            {"id": row.project_id, "name": row.project.name, "role": row.role, "source": row.source}
        )
    factors = set(
        Authenticator.objects.filter(user__in=keys)
        .exclude(type=Authenticator.Type.RECOVERY_CODES)
        .values_list("user_id", flat=True)
    )
    providers = _read_providers(keys)
    return [
        {
            "username": person.username,
            "name": person.get_full_name(),
            "email": person.email,
            "isActive": person.is_active,
            "isAdministrator": person.is_superuser,
            "isOperator": person.is_staff,
            "isService": person.service_project_id is not None,
            "hasPassword": person.has_usable_password(),
            "hasSecondFactor": person.pk in factors,
            "providers": providers[person.pk],
            "createdAt": person.date_joined,
            "lastSignInAt": person.last_login,
            "projects": roles[person.pk],
        }
        for person in people
    ]


def _read_providers(keys: list[int]) -> dict[int, list[str]]:
    found: dict[int, list[str]] = defaultdict(list)
    if apps.is_installed("allauth.socialaccount"):
        links = apps.get_app_config("socialaccount").get_model("SocialAccount")._default_manager
        for user, provider in links.filter(user__in=keys).order_by("provider").values_list("user", "provider"):
            found[user].append(provider)
    return found


@transaction.atomic
def create_person(actor: User, username: str, email: str = "") -> tuple[User, dict[str, Any]]:
    """Create an account without a password and return it with its invitation. Raises ApiError."""
    _require_all_rights(actor)
    try:
        UnicodeUsernameValidator()(username)
    except ValidationError as error:
        raise ApiError(400, "FIELD_INVALID", "username", detail=" ".join(error.messages)) from None
    if email and User.objects.filter(email__iexact=email).exists():
        raise ApiError(409, "EMAIL_TAKEN", "email", email=email)
    try:
        with transaction.atomic():
            person = User.objects.create_user(username, email)
    except IntegrityError:
        raise ApiError(409, "USERNAME_TAKEN", "username", username=username) from None
    audit.record_event(actor, "person.create", username, email=email)
    return person, _make_invitation(actor, person)


@transaction.atomic
def change_person(actor: User, username: str, **changes: bool) -> User:
    """Set `is_active`, `is_superuser`, `is_staff`. Deactivating ends sessions and tokens. Raises ApiError: 409 for
    oneself, for the last active administrator, and for rights of a service account."""
    _require_all_rights(actor)
    administrators = set(
        User.objects.select_for_update()
        .filter(is_superuser=True, is_active=True)
        .order_by("pk")
        .values_list("pk", flat=True)
    )  # locked, so that two administrators do not remove each other
    person = get_person(actor, username)
    changed = {name: value for name, value in changes.items() if getattr(person, name) != value}
    if not changed:
        return person
    if person.pk == actor.pk:
        raise ApiError(409, "PERSON_IS_YOU", username=username)
    if person.service_project_id and (changed.get("is_superuser") or changed.get("is_staff")):
        raise ApiError(409, "PERSON_IS_SERVICE", username=username)
    loses = changed.get("is_active") is False or changed.get("is_superuser") is False
    if loses and administrators == {person.pk}:
        raise ApiError(409, "LAST_ADMINISTRATOR", username=username)
    if changed.get("is_superuser"):
        changed["is_staff"] = True
    User.objects.filter(pk=person.pk).update(**changed)
    flags: dict[str, Any] = {_FLAGS[name]: value for name, value in changed.items()}
    audit.record_event(actor, "person.change", username, **flags)
    if changed.get("is_active") is False:
        end_access(person, "deactivated", actor=actor)
    return User.objects.get(pk=person.pk)


@transaction.atomic
def create_invitation(actor: User, username: str) -> dict[str, Any]:
    """Return a link that signs a person in once, so that they set a password; the password that they had is void, and
    their sessions end. Raises ApiError 409 for oneself, who is deactivated, and who has a second factor."""
    _require_all_rights(actor)
    person = get_person(actor, username)
    if person.pk == actor.pk:
        raise ApiError(409, "PERSON_IS_YOU", username=username)
    if person.service_project_id:
        raise ApiError(409, "PERSON_IS_SERVICE", username=username)
    if not person.is_active:
        raise ApiError(409, "PERSON_INACTIVE", username=username)
    if Authenticator.objects.filter(user=person).exists():  # a link would go around it
        raise ApiError(409, "PERSON_HAS_SECOND_FACTOR", username=username)
    person.set_unusable_password()
    User.objects.filter(pk=person.pk).update(password=person.password)
    end_access(person, "invited again", actor=actor, tokens=None)
    return _make_invitation(actor, person)


def _make_invitation(actor: User, person: User) -> dict[str, Any]:
    path = services.create_sign_in_link(person, INVITATION_LIFETIME)
    audit.record_event(actor, "person.invite", person.username)
    return {"path": path, "expiresAt": now() + INVITATION_LIFETIME}


@transaction.atomic
def reset_second_factors(actor: User, username: str) -> None:
    """Delete a person's second factors, who has lost them, and end their sessions. Raises ApiError 409 for oneself."""
    _require_all_rights(actor)
    person = get_person(actor, username)
    if person.pk == actor.pk:
        raise ApiError(409, "PERSON_IS_YOU", username=username)
    Authenticator.objects.filter(user=person).delete()
    audit.record_event(actor, "person.reset-second-factors", username)
    end_access(person, "second factors reset", actor=actor, tokens=None)


def _require_all_rights(actor: User) -> None:
    """Raise ApiError 403 unless the request has all rights of an administrator: who creates accounts and links could
    give themselves what a narrow token withholds."""
    access.require_administrator(actor)
    if actor.token_rights and actor.token_rights.narrow:
        raise ApiError(403, "TOKEN_TOO_NARROW", token=actor.token_rights.name)
