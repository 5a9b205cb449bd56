"""Permission checks by project role. A user without a role in a project gets 404, never 403, for what belongs to it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from django.contrib.auth.models import AnonymousUser
from django.db.models import Exists, Model, OuterRef, Q, QuerySet, Value

from apps.accounts.models import Membership, Project, Role, User
from apps.accounts.scopes import TokenRights
from apps.common.errors import ApiError
from apps.common.sql import CompiledQuery, list_columns

M = TypeVar("M", bound=Model)


@dataclass(frozen=True, slots=True)
class UserRights:
    """Stand-in for a user in a query that is compiled once for all users: the attributes that `filter_visible` and
    `build_may_change_expression` read. Where `pk` is 0, the shape of such a query."""

    pk: int
    is_superuser: bool
    token_rights: TokenRights | None = None

    def with_key(self, pk: int) -> "UserRights":
        """Return the rights of the user with this key."""
        return UserRights(pk, self.is_superuser, self.token_rights)


Rows = TypeVar("Rows", bound=QuerySet[Any, Any])
AnyUser = User | AnonymousUser | UserRights

_ROLE_ORDER = list(Role)
_MEMBER_ROLES = frozenset(_ROLE_ORDER[_ROLE_ORDER.index(Role.MEMBER) :])  # to change what is in a project


def get_rights(user: AnyUser) -> UserRights:
    """Return what the queries of this module read of a user."""
    return UserRights(user.pk or 0, user.is_superuser, _get_limits(user))


def get_query_shape(user: AnyUser) -> UserRights:
    """Return the shape of a compiled query for the user; `build_user_params` has its parameters."""
    limits = _get_limits(user)
    same = limits and TokenRights("", "", projects=limits.projects, administrator=limits.administrator)
    return UserRights(0, user.is_superuser, same)


def build_user_params(user: AnyUser) -> dict[str, int]:
    """Return the parameters of a compiled query that say who the user is; empty for an administrator."""
    limits = _get_limits(user)
    return {} if user.is_superuser or (limits and limits.administrator) else {"user": user.pk or 0}


def list_roles(user: AnyUser) -> dict[str, Role]:
    """Return the user's role in each project where the user has one. An administrator is a maintainer everywhere, and
    is not listed, unless the request's token is one of projects."""
    limits = _get_limits(user)
    if limits and limits.administrator:
        return dict.fromkeys(sorted(limits.projects or ()), Role.MAINTAINER)
    found = {row["project"]: Role(row["role"]) for row in _ROLES_QUERY.fetch(user=user.pk or 0)}
    return {key: role for key, role in found.items() if limits is None or key in (limits.projects or ())}


def select_projects(user: AnyUser, least: Role = Role.VIEWER) -> QuerySet[Any, Any] | list[str]:
    """Return the ids of the projects where the user has this role or a higher one, for `__in`. Administrators, who
    have all, are the caller's to tell."""
    limits = _get_limits(user)
    if limits and limits.administrator:
        return sorted(limits.projects or ())
    rows = Membership.objects.filter(user_id=user.pk or 0)
    if limits:
        rows = rows.filter(project__in=sorted(limits.projects or ()))
    if least is not Role.VIEWER:
        rows = rows.filter(role__in=_ROLE_ORDER[_ROLE_ORDER.index(least) :])
    return rows.values("project")


def _get_limits(user: AnyUser) -> TokenRights | None:
    """Return the rights of the request's token if they are limited to projects."""
    rights: TokenRights | None = getattr(user, "token_rights", None)
    return rights if rights and rights.projects is not None else None


def filter_visible(
    rows: Rows, user: AnyUser, path: str = "project", *, shared: bool = False, or_open: Q | None = None
) -> Rows:
    """Return the rows that `user` may see: those of the user's projects, with `shared` also those that belong to no
    project, and with `or_open` the rows that meet this condition, for every user who has a project.

    `path` leads from the row to its project, e.g. `task__project`.
    """
    if user.is_superuser:
        return rows
    projects = select_projects(user)
    mine = Q(**{f"{path}__in": projects})
    if or_open is not None:
        mine |= or_open & (Q(Exists(projects)) if isinstance(projects, QuerySet) else Q())
    return rows.filter(mine | Q(**{f"{path}__isnull": True}) if shared else mine)


_ROLE_QUERY = CompiledQuery(
    lambda user, project: Membership.objects.filter(user=user, project=project), list_columns(Membership, "role")
)


_ROLES_QUERY = CompiledQuery(
    lambda user: Membership.objects.filter(user=user), list_columns(Membership, "project", "role")
)


def get_role(user: AnyUser, project: Project | str | None) -> Role | None:
    """Return the user's role in a project, or None. An administrator is a maintainer everywhere; every user is a viewer
    of what belongs to no project (`project` None)."""
    if user.is_superuser:
        return Role.MAINTAINER
    if project is None:
        return Role.VIEWER
    key = project.pk if isinstance(project, Project) else project
    if limits := _get_limits(user):
        if key not in (limits.projects or ()):
            return None
        if limits.administrator:
            return Role.MAINTAINER
    found = _ROLE_QUERY.first(user=user.pk or 0, project=key)
    return Role(found["role"]) if found else None


def build_may_change_expression(user: AnyUser, path: str = "project") -> Exists | Value:
    """Return an expression for a query over rows: whether `user` is a member or maintainer of the row's project."""
    if user.is_superuser:
        return Value(True)
    if limits := _get_limits(user):
        projects = Project.objects.filter(pk=OuterRef(path), pk__in=sorted(limits.projects or ()))
        if limits.administrator:
            return Exists(projects)
        mine = Membership.objects.filter(user_id=user.pk or 0, role__in=_MEMBER_ROLES)
        return Exists(projects.filter(pk__in=mine.values("project")))
    return Exists(Membership.objects.filter(user_id=user.pk or 0, project=OuterRef(path), role__in=_MEMBER_ROLES))


def read_changeable_projects(user: AnyUser) -> Mapping[str, bool] | None:
    """Return the user's projects, each with whether the user is a member or maintainer there; None for an
    administrator, who may change all.

    For queries over very many rows: given as values, the projects let the database estimate how few rows they hold;
    behind a subquery it cannot, and reads all rows. The roles are read on each call, so that a withdrawn role counts at
    once.
    """
    if user.is_superuser:
        return None
    return {project: role in _MEMBER_ROLES for project, role in list_roles(user).items()}


def make_usage_check(user: AnyUser) -> Callable[[str | None], bool]:
    """Return a function that tells of a row's project id whether `user` is a member or maintainer there. For None (a
    row without a project) it tells whether the user is that in any project."""
    if user.is_superuser:
        return lambda project: True
    mine = {project for project, role in list_roles(user).items() if role in _MEMBER_ROLES}
    return lambda project: bool(mine) if project is None else project in mine


def is_member(user: AnyUser, project: Project | str | None) -> bool:
    """Return True if the user is a member or maintainer of the project."""
    role = get_role(user, project)
    return role in _MEMBER_ROLES


def may_act(user: User, project: Project | str | None) -> bool:
    """Return True if what a person has left to run by itself, such as a schedule, may go on with their rights: they are
    active, and a member or maintainer of the project."""
    return user.is_active and is_member(user, project)


def require_role(user: AnyUser, project: Project | str | None, role: Role = Role.VIEWER) -> None:
    """Raise ApiError 404 NOT_FOUND if the user has no role in the project, and 403 FORBIDDEN if the role is too low."""
    has = get_role(user, project)
    if has is None:
        raise ApiError(404, "NOT_FOUND")
    if _ROLE_ORDER.index(has) < _ROLE_ORDER.index(role):
        raise ApiError(403, "FORBIDDEN")


def require_administrator(user: AnyUser) -> None:
    """Raise ApiError 403 FORBIDDEN unless the user is an administrator."""
    if not user.is_superuser:
        raise ApiError(403, "FORBIDDEN")


def get_project(user: AnyUser, key: str) -> Project:
    """Return the project with this id. Raises ApiError 404 NOT_FOUND if the user has no role in it."""
    found = filter_visible(Project.objects.all(), user, "pk").filter(pk=key).first()
    if found is None:
        raise ApiError(404, "NOT_FOUND")
    return found


def get_object(rows: QuerySet[M, M], user: AnyUser, key: str, role: Role = Role.VIEWER, *, shared: bool = False) -> M:
    """Return the row with primary key `key`, a model with a `project`, if the user has `role` there. Raises ApiError
    404 or 403, as `require_role` does."""
    row = filter_visible(rows, user, shared=shared).filter(pk=key).first()
    if row is None:
        raise ApiError(404, "NOT_FOUND")
    if role is not Role.VIEWER:
        require_role(user, row.project_id, role)  # type: ignore[attr-defined]
    return row


def choose_project(user: User, project_id: str | None) -> str:
    """Return the named project, if the user is a member; without a name the user's only one. Raises ApiError."""
    if project_id is not None:
        if not filter_visible(Project.objects.all(), user, "pk").filter(pk=project_id).exists():
            raise ApiError(400, "PROJECT_UNKNOWN", "projectId", project=project_id)
        require_role(user, project_id, Role.MEMBER)
        return project_id
    rows = Project.objects.all()
    if not user.is_superuser:
        rows = rows.filter(pk__in=select_projects(user, Role.MEMBER))
    known = list(rows.order_by("name").values_list("pk", flat=True)[:20])
    if len(known) != 1:
        raise ApiError(400, "PROJECT_REQUIRED", "projectId", allowed=", ".join(known) or "–")
    return known[0]
