"""Service accounts: users that belong to a project and act by tokens alone. They have no password, no session and no
sign-in link; a maintainer chooses their role and makes their tokens."""

from collections.abc import Sequence
from typing import Any

from django.db import IntegrityError, transaction
from django.db.models import Count, F, QuerySet

from apps.accounts import access, audit, tokens
from apps.accounts.models import ApiToken, Membership, Project, Role, User
from apps.common.errors import ApiError
from apps.common.row_bounds import check_row_limit

SEPARATOR = "@"
"""Between an account's name and its project's id in the username."""


def build_username(project: Project, name: str) -> str:
    """Return the username of a project's service account: renaming the project does not change it."""
    return f"{name}{SEPARATOR}{project.pk}"


def list_accounts(user: User, project: Project) -> QuerySet[User, Any]:
    """Return the project's service accounts (maintainer)."""
    access.require_role(user, project, Role.MAINTAINER)
    return (
        User.objects.filter(service_project=project, is_active=True, memberships__project=project)
        .annotate(tokens_=Count("auth_token_set", distinct=True))
        .values(
            "username",
            name=F("first_name"),
            role=F("memberships__role"),
            createdAt=F("date_joined"),
            tokens=F("tokens_"),
        )
    )


@transaction.atomic
def create_account(user: User, project: Project, name: str, role: str) -> dict[str, Any]:
    """Create a service account (maintainer), or enable one again that was deleted. Raises ApiError 409 where the name
    is taken."""
    _require_maintainer(user, project)
    check_row_limit("service-accounts", User.objects.filter(service_project=project, is_active=True))
    username = build_username(project, name)
    account = User.objects.filter(username=username, service_project=project).first()
    if account is None:
        account = User(username=username, first_name=name, service_project=project)
        account.set_unusable_password()
        try:
            with transaction.atomic():
                account.save()
        except IntegrityError:  # somebody's own username
            raise ApiError(409, "SERVICE_ACCOUNT_TAKEN", "name", name=name) from None
    elif account.is_active:
        raise ApiError(409, "SERVICE_ACCOUNT_TAKEN", "name", name=name)
    else:
        User.objects.filter(pk=account.pk).update(is_active=True)
    Membership.objects.update_or_create(project=project, user=account, defaults={"role": role})
    audit.record_event(user, "service-account.create", username, project=project, role=role)
    return {"name": name, "username": username, "role": role, "createdAt": account.date_joined, "tokens": 0}


@transaction.atomic
def change_account(user: User, project: Project, name: str, role: str) -> None:
    """Change the role of a service account (maintainer). Raises ApiError 404."""
    account = get_account(user, project, name)
    Membership.objects.filter(project=project, user=account).update(role=role)
    audit.record_event(user, "service-account.change", account.username, project=project, role=role)


@transaction.atomic
def delete_account(user: User, project: Project, name: str) -> None:
    """Delete a service account with its tokens (maintainer). Its tasks go on, and stay with the project under its name:
    the row is kept, without a role. Raises ApiError 404."""
    account = get_account(user, project, name)
    _disable(account)
    audit.record_event(user, "service-account.delete", account.username, project=project)


def disable_accounts(project: Project) -> None:
    """Disable all service accounts of a project that is deleted."""
    for account in User.objects.filter(service_project=project):
        _disable(account)


def create_account_token(
    user: User, project: Project, name: str, token: str, days: int | None, scopes: Sequence[str] | None
) -> dict[str, Any]:
    """Create a token for a service account (maintainer), limited to the project, and return it with its value. Its
    scopes are never more than those of the token that `user` uses."""
    account = get_account(user, project, name)
    return tokens.create_token(user, token, days, scopes=scopes, projects=[project.pk], account=account)


def get_account(user: User, project: Project, name: str) -> User:
    """Return a service account of the project (maintainer). Raises ApiError 404."""
    _require_maintainer(user, project)
    username = build_username(project, name)
    found = User.objects.filter(service_project=project, username=username, is_active=True).first()
    if found is None:
        raise ApiError(404, "NOT_FOUND")
    return found


def _require_maintainer(user: User, project: Project) -> None:
    """Raise ApiError 403 unless the user is a maintainer and a person: a service account makes no others."""
    access.require_role(user, project, Role.MAINTAINER)
    if user.service_project_id:
        raise ApiError(403, "FORBIDDEN")


def _disable(account: User) -> None:
    User.objects.filter(pk=account.pk).update(is_active=False)
    Membership.objects.filter(user=account).delete()
    ApiToken.objects.filter(user=account).delete()
