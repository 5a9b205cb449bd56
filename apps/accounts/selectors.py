"""Queries of accounts, as the API returns them."""

from typing import Any

from django.db.models import F, QuerySet, Value

from apps.accounts import access
from apps.accounts.models import Membership, Project, Role, SavedView, User
from apps.accounts.scopes import TokenRights

TOKEN_ID_LENGTH = 16  # hexadecimal digits of the hash: names a token without telling it


def serialize_user(user: User, language: str) -> dict[str, Any]:
    return {
        "username": user.username,
        "email": user.email,
        "isAdministrator": user.is_superuser,
        "language": language,
        "projects": list(list_projects(user).order_by("name")),
        "token": serialize_rights(user.token_rights) if user.token_rights else None,
    }


def serialize_rights(rights: TokenRights) -> dict[str, Any]:
    """Return what a token may be used for. None: not narrowed."""
    limits = {"scopes": rights.scopes, "projects": rights.projects, "tasks": rights.tasks}
    return {
        "id": rights.token,
        "name": rights.name,
        **{name: None if found is None else sorted(found) for name, found in limits.items()},
    }


def list_saved_views(user: User) -> QuerySet[SavedView, Any]:
    return SavedView.objects.filter(user=user).values("id", "section", "name", "query")


def list_projects(user: User) -> QuerySet[Project, Any]:
    role: Any = F("memberships__role")
    rows = Project.objects.filter(memberships__user=user)
    if user.is_superuser:
        role, rows = Value(str(Role.MAINTAINER)), Project.objects.all()
    elif user.token_rights and user.token_rights.projects is not None:
        narrowed = access.filter_visible(Project.objects.all(), user, "pk")
        if user.token_rights.administrator:
            role, rows = Value(str(Role.MAINTAINER)), narrowed
        else:
            rows = rows.filter(pk__in=narrowed.values("pk"))
    return rows.values("id", "name", "warm", role=role, createdAt=F("created_at"))


def list_members(project: Project) -> QuerySet[Membership, Any]:
    return Membership.objects.filter(project=project).values("role", username=F("user__username"))
