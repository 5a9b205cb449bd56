"""Owners of channels and rules, and who may change them: a user's are the user's alone, a project's are changed by its
maintainers and seen by its members, the platform's are the administrators'."""

from typing import Any, TypeVar

from django.db.models import Q, QuerySet

from apps.accounts import access
from apps.accounts.models import Role, User
from apps.common.errors import ApiError
from apps.notices.models import Owned

M = TypeVar("M", bound=Owned)
ME, PROJECT, PLATFORM = "me", "project", "platform"


def filter_visible(rows: QuerySet[M], user: User) -> QuerySet[M]:
    """Return the rows that the user may see."""
    mine = Q(user=user) | Q(project__in=access.select_projects(user))
    if user.is_superuser:
        mine |= Q(user=None)
    return rows.filter(mine)


def get_owned(rows: QuerySet[M], user: User, key: str, *, change: bool = False) -> M:
    """Return the row, if the user may see it, or with `change` change it. Raises ApiError."""
    row = filter_visible(rows, user).filter(pk=key).first()
    if row is None:
        raise ApiError(404, "NOT_FOUND")
    if change:
        require_scope(user, get_scope(row), row.project_id)
    return row


def get_scope(row: Owned) -> str:
    """Return whether the row belongs to a user, a project or the platform."""
    return ME if row.user_id else PROJECT if row.project_id else PLATFORM


def require_scope(user: User, scope: str, project: str | None) -> None:
    """Raise ApiError if the user may not have a row of this scope."""
    if scope == PLATFORM:
        access.require_administrator(user)
    elif scope == PROJECT:
        access.require_role(user, access.get_project(user, project or ""), Role.MAINTAINER)


def build_owner_columns(user: User, scope: str, project: str | None) -> dict[str, Any]:
    """Return the owner's columns of a new row. Raises ApiError."""
    if scope == PROJECT and not project:
        raise ApiError(400, "NOTICE_PROJECT_MISSING", "projectId")
    require_scope(user, scope, project)
    return {"user": user if scope == ME else None, "project_id": project if scope == PROJECT else None}
