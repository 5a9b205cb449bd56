"""Who may see and do what. Someone without a role in a project is told 404, never 403, about what is in it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from django.contrib.auth.models import AnonymousUser
from django.db.models import Exists, Model, OuterRef, Q, QuerySet, Value

from apps.accounts.models import Membership, Project, Role, User
from apps.common.errors import ApiError

M = TypeVar("M", bound=Model)


@dataclass(frozen=True, slots=True)
class Reader:
    """Of somebody as much as `visible` and `may_change` ask for: in a query that is compiled once for everybody."""

    pk: int
    is_superuser: bool


Rows = TypeVar("Rows", bound=QuerySet[Any, Any])
Someone = User | AnonymousUser | Reader

_ORDER = list(Role)
_ENOUGH = frozenset(_ORDER[_ORDER.index(Role.MEMBER) :])  # to change what is in a project


def reader(user: Someone) -> dict[str, int]:
    """What a compiled query needs to know of who asks, beside whether it is the administrator."""
    return {} if user.is_superuser else {"user": user.pk or 0}


def visible(
    rows: Rows, user: Someone, path: str = "project", *, shared: bool = False, or_open: Q | None = None
) -> Rows:
    """What `user` may see: what belongs to a project of theirs; with `shared` also what belongs to none, and `or_open`
    what is open to whoever has any project.

    `path` leads from the row to its project, e.g. `task__project`.
    """
    if user.is_superuser:
        return rows
    memberships = Membership.objects.filter(user_id=user.pk or 0)
    mine = Q(**{f"{path}__in": memberships.values("project")})
    if or_open is not None:
        mine |= or_open & Q(Exists(memberships))
    return rows.filter(mine | Q(**{f"{path}__isnull": True}) if shared else mine)


def role_in(user: Someone, project: Project | str | None) -> Role | None:
    """The administrator is a maintainer everywhere; everybody is a viewer of what belongs to no project."""
    if user.is_superuser:
        return Role.MAINTAINER
    if project is None:
        return Role.VIEWER
    key = project.pk if isinstance(project, Project) else project
    role = Membership.objects.filter(user_id=user.pk or 0, project_id=key).values_list("role", flat=True).first()
    return Role(role) if role else None


def may_change(user: Someone, path: str = "project") -> Exists | Value:
    """Of each row, for the query that reads it: whether `user` is a member or more in its project."""
    if user.is_superuser:
        return Value(True)
    return Exists(Membership.objects.filter(user_id=user.pk or 0, project=OuterRef(path), role__in=_ENOUGH))


def changed_by(user: Someone) -> Mapping[str, bool] | None:
    """The projects of `user`, and in which of them they are a member or more; None: all, of the administrator.

    Where very many rows are looked through, the database has to be told which projects, as values: behind a subquery
    it does not know how few of the rows they hold, and reads all. It is asked each time, so that what is taken back is
    taken back at once."""
    if user.is_superuser:
        return None
    rows = Membership.objects.filter(user_id=user.pk or 0).values_list("project_id", "role")
    return {project: role in _ENOUGH for project, role in rows}


def may_use(user: Someone) -> Callable[[str | None], bool]:
    """Of the project of a row (its id): whether `user` is a member or more there, of what belongs to none, anywhere."""
    if user.is_superuser:
        return lambda project: True
    rows = Membership.objects.filter(user_id=user.pk or 0, role__in=_ENOUGH)
    mine = set(rows.values_list("project_id", flat=True))
    return lambda project: bool(mine) if project is None else project in mine


def is_member(user: Someone, project: Project | str | None) -> bool:
    """Or more than that."""
    role = role_in(user, project)
    return role in _ENOUGH


def require(user: Someone, project: Project | str | None, role: Role = Role.VIEWER) -> None:
    """404 NOT_FOUND for a stranger to the project, 403 FORBIDDEN for somebody whose role is too low."""
    has = role_in(user, project)
    if has is None:
        raise ApiError(404, "NOT_FOUND")
    if _ORDER.index(has) < _ORDER.index(role):
        raise ApiError(403, "FORBIDDEN")


def require_administrator(user: Someone) -> None:
    if not user.is_superuser:
        raise ApiError(403, "FORBIDDEN")


def project(user: Someone, key: str) -> Project:
    """404 NOT_FOUND for a stranger to it."""
    found = visible(Project.objects.all(), user, "pk").filter(pk=key).first()
    if found is None:
        raise ApiError(404, "NOT_FOUND")
    return found


def get(rows: QuerySet[M, M], user: Someone, key: str, role: Role = Role.VIEWER, *, shared: bool = False) -> M:
    """The row with primary key `key` and a `project`, if `user` has `role` there; else 404 or 403 as above."""
    row = visible(rows, user, shared=shared).filter(pk=key).first()
    if row is None:
        raise ApiError(404, "NOT_FOUND")
    if role is not Role.VIEWER:
        require(user, row.project_id, role)  # type: ignore[attr-defined]
    return row
