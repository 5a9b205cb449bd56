"""People as directories write them: each is an account of the platform, found or made."""

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from allauth.socialaccount.models import SocialAccount
from django.contrib.auth.validators import UnicodeUsernameValidator
from django.core.exceptions import ValidationError
from django.db import transaction
from django.db.models import Q
from scim2_models import PatchOp

from apps.accounts import audit
from apps.accounts.models import User
from apps.accounts.revocation import end_access
from apps.common.clock import now
from apps.common.errors import ApiError
from apps.common.row_bounds import check_row_limit
from apps.directory.application import apply_rules, lock_rules
from apps.directory.models import (
    MAX_EXTERNAL_ID,
    Directory,
    DirectoryUser,
    GroupMember,
    RuleAdministrator,
    UidAttribute,
)
from apps.directory.roles import MAX_GROUPS
from apps.directory.scim.resources import ScimGroupOfUser, ScimUser

STORED_FIELDS = ("name", "displayName", "emails")
"""Of a user's attributes, those in DirectoryUser.data. The others are columns."""


def lock_directory(directory: Directory) -> None:
    """Let no other transaction write people and groups of the directory, or apply rules. Raises ApiError 401 where the
    directory is gone."""
    if not Directory.objects.select_for_update(of=("self",)).filter(pk=directory.pk).exists():
        raise ApiError(401, "TOKEN_INVALID")
    lock_rules()


def find_person(directory: Directory, person_id: str) -> DirectoryUser:
    """Return the person. Raises ApiError 404; a service account is never a directory's."""
    rows = DirectoryUser.objects.filter(directory=directory, deleted_at=None, user__service_project=None)
    found = rows.select_related("user").filter(pk=person_id).first()
    if found is None:
        raise ApiError(404, "NOT_FOUND")
    return found


@transaction.atomic
def create_person(directory: Directory, given: ScimUser) -> DirectoryUser:
    """Add a person: the account that is theirs already, or a new one, which has no password. Raises ApiError 409 for an
    account that is not to be had (docs/decisions/0137)."""
    lock_directory(directory)
    rows = DirectoryUser.objects.filter(directory=directory)
    name, external_id = given.user_name or "", given.external_id or ""
    _check_names(name, external_id)
    known = rows.filter(Q(user_name__iexact=name) | Q(external_id=external_id, external_id__gt=""))
    row = known.order_by("pk").select_related("user").first()
    if row is not None and (row.deleted_at is None or row.external_id != external_id or len(known) > 1):
        raise ApiError(409, "SCIM_USER_EXISTS", "userName", name=name)
    if row is None:
        check_row_limit("directory-users", rows)
        user = _find_account(directory, name, external_id) or _create_account(directory, name)
        row = DirectoryUser(directory=directory, user=user, created_at=now())
    elif _is_administrator_by_hand(row.user):
        raise ApiError(409, "SCIM_USER_NAME_TAKEN", "userName", name=name)
    row.deleted_at = None
    _store(row, given if given.active is not None else given.model_copy(update={"active": True}), created=True)
    return row


@transaction.atomic
def change_person(directory: Directory, person_id: str, given: ScimUser) -> DirectoryUser:
    """Replace a person's attributes. Raises ApiError 404, and 409 for what another person has and for the last
    administrator."""
    lock_directory(directory)
    row = find_person(directory, person_id)
    _change(row, given)
    return row


@transaction.atomic
def patch_person(directory: Directory, person_id: str, patch: PatchOp[ScimUser]) -> DirectoryUser:
    """Change some of a person's attributes. Raises ApiError as `change_person` does, SCIMException for what cannot be
    applied."""
    lock_directory(directory)
    row = find_person(directory, person_id)
    given = make_resource(row)
    patch.patch(given)
    _change(row, given)
    return row


def _change(row: DirectoryUser, given: ScimUser) -> None:
    name, external_id = given.user_name or "", given.external_id or ""
    _check_names(name, external_id)
    others = DirectoryUser.objects.filter(directory=row.directory).exclude(pk=row.pk)
    if others.filter(Q(user_name__iexact=name) | Q(external_id=external_id, external_id__gt="")).exists():
        raise ApiError(409, "SCIM_USER_EXISTS", "userName", name=name)
    _store(row, given)


@transaction.atomic
def delete_person(directory: Directory, person_id: str) -> None:
    """Deactivate a person's account and remove the person from all groups. The account stays, because what it made
    belongs to projects. Raises ApiError 404, and 409 for the last administrator."""
    lock_directory(directory)
    row = find_person(directory, person_id)
    _set_active(row, False)
    GroupMember.objects.filter(person=row).delete()
    row.deleted_at = row.updated_at = now()
    row.save()
    audit.record_event(None, "person.remove", row.user.username, **_describe(directory))
    apply_rules([row.user])


def read_groups(rows: Sequence[DirectoryUser]) -> dict[str, list[ScimGroupOfUser]]:
    """Return the groups of each of these people, by their ids."""
    found: dict[str, list[ScimGroupOfUser]] = defaultdict(list)
    memberships = GroupMember.objects.filter(person__in=[row.pk for row in rows]).order_by("pk")
    for person, group, name in memberships.values_list("person", "group", "group__display_name"):
        if len(found[person]) < MAX_GROUPS:
            found[person].append(ScimGroupOfUser(value=group, display=name))
    return found


def make_resource(row: DirectoryUser) -> ScimUser:
    """Return a person with the attributes that the directory wrote."""
    stored = {key: row.data[key] for key in STORED_FIELDS if key in row.data}
    about = {"id": row.pk, "userName": row.user_name, "active": row.active, **stored}
    return ScimUser.model_validate(about | ({"externalId": row.external_id} if row.external_id else {}))


def _check_names(name: str, external_id: str) -> None:
    try:
        UnicodeUsernameValidator()(name)
    except ValidationError as error:
        raise ApiError(400, "FIELD_INVALID", "userName", detail=" ".join(error.messages)) from None
    if len(external_id) > MAX_EXTERNAL_ID:
        raise ApiError(400, "FIELD_INVALID", "externalId", detail=f"> {MAX_EXTERNAL_ID}")


def _get_uid(directory: Directory, name: str, external_id: str) -> str:
    """Return what the identity provider knows a person by, or an empty text."""
    if not directory.provider:
        return ""
    values: dict[str, str] = {UidAttribute.EXTERNAL_ID: external_id, UidAttribute.USER_NAME: name}
    return values.get(directory.uid_attribute, "")


def _find_account(directory: Directory, name: str, external_id: str) -> User | None:
    """Return the account that a new person of the directory has already: it signs in by the directory's provider, by
    the right uid where that is known. Raises ApiError 409 for any other account of the name."""
    uid = _get_uid(directory, name, external_id)
    links = (
        SocialAccount.objects.filter(provider=directory.provider)
        if directory.provider
        else SocialAccount.objects.none()
    )
    link = links.filter(uid=uid).select_related("user").first() if uid else None
    user = link.user if link else User.objects.filter(username__iexact=name).order_by("pk").first()
    if user is None:
        return None
    vouched = link is not None or (not uid and links.filter(user=user).exists())
    if not vouched or user.service_project_id or _is_administrator_by_hand(user) or hasattr(user, "directory_user"):
        raise ApiError(409, "SCIM_USER_NAME_TAKEN", "userName", name=name)
    audit.record_event(None, "person.link", user.username, **_describe(directory))
    return user


def _is_administrator_by_hand(user: User) -> bool:
    return (user.is_superuser or user.is_staff) and not RuleAdministrator.objects.filter(user=user).exists()


def _create_account(directory: Directory, name: str) -> User:
    user = User.objects.create_user(name)  # with a password that nobody has
    audit.record_event(None, "person.create", name, **_describe(directory))
    return user


def _store(row: DirectoryUser, given: ScimUser, *, created: bool = False) -> None:
    """Store what the directory wrote, in its row and in the account, and apply the rules where somebody is new, or is
    active or not as before."""
    before = _get_uid(row.directory, row.user_name, row.external_id)
    row.user_name, row.external_id = given.user_name or "", given.external_id or ""
    row.data = {key: value for key, value in given.model_dump().items() if key in STORED_FIELDS}
    row.updated_at = now()
    _store_profile(row, given)
    was_active = row.user.is_active
    if given.active is not None:
        _set_active(row, given.active)
    row.save()
    _link(row, before)
    if created or was_active != row.user.is_active:
        apply_rules([row.user])


def _store_profile(row: DirectoryUser, given: ScimUser) -> None:
    """Make the account's name and address those of the directory. Raises ApiError 409 for another account's address.
    An administrator by hand keeps the address, at which the platform lets its owner set a new password."""
    user, emails = row.user, given.emails or []
    chosen = next((one for one in emails if one.primary), emails[0] if emails else None)
    email = (chosen.value or "") if chosen else ""
    values: dict[str, Any] = {}
    if email and not _is_administrator_by_hand(user):
        values["email"] = email
        if User.objects.filter(email__iexact=email).exclude(pk=user.pk).exists():
            raise ApiError(409, "EMAIL_TAKEN", "emails", email=email)
    if given.name:
        values |= {"first_name": given.name.given_name or "", "last_name": given.name.family_name or ""}
    elif given.display_name:
        values |= {"first_name": given.display_name[:150], "last_name": ""}
    changed = {key: value for key, value in values.items() if getattr(user, key) != value}
    if changed:
        User.objects.filter(pk=user.pk).update(**changed)
        audit.record_event(None, "person.change", user.username, fields=sorted(changed), **_describe(row.directory))


def _set_active(row: DirectoryUser, active: bool) -> None:
    """Activate the account where the directory had deactivated it, or deactivate it, which ends its access. One that an
    administrator deactivated stays so. Raises ApiError 409 for the last administrator."""
    user = row.user
    before, row.active = row.active, active
    if user.is_active == active or (active and before):
        return
    administrators = User.objects.filter(is_superuser=True, is_active=True)
    if user.is_superuser and not active and not administrators.exclude(pk=user.pk).exists():
        raise ApiError(409, "LAST_ADMINISTRATOR", username=user.username)
    User.objects.filter(pk=user.pk).update(is_active=active)
    user.is_active = active
    audit.record_event(None, "person.change", user.username, active=active, **_describe(row.directory))
    if not active:
        end_access(user, "deactivated by a directory")


def _link(row: DirectoryUser, before: str) -> None:
    """Let the person sign in by the directory's provider. Raises ApiError 409 where another account has the uid, and
    for a new uid of an administrator by hand: whoever can write to the directory would sign in as that one."""
    uid = _get_uid(row.directory, row.user_name, row.external_id)
    if before != uid and _is_administrator_by_hand(row.user):
        raise ApiError(409, "SCIM_ADMINISTRATOR", "externalId", username=row.user.username)
    links = SocialAccount.objects.filter(provider=row.directory.provider)
    if before and before != uid:
        links.filter(user=row.user, uid=before).delete()
    if not uid:
        return
    found = links.filter(uid=uid).first()
    if found is None:
        SocialAccount.objects.create(user=row.user, provider=row.directory.provider, uid=uid, extra_data={})
        audit.record_event(None, "identity-provider.link", row.directory.provider, username=row.user.username, uid=uid)
    elif found.user_id != row.user_id:
        raise ApiError(409, "IDENTITY_UID_TAKEN", "externalId", uid=uid)


def _describe(directory: Directory) -> dict[str, str]:
    return {"by": "directory", "directory": directory.pk}
