"""Choice of the project that something new belongs to."""

from apps.accounts import access
from apps.accounts.models import Membership, Project, Role, User
from apps.common.errors import ApiError


def choose_project(user: User, project_id: str | None) -> str:
    """Return the named project, if the user is a member; without a name the user's only one. Raises ApiError."""
    if project_id is not None:
        if not access.filter_visible(Project.objects.all(), user, "pk").filter(pk=project_id).exists():
            raise ApiError(400, "PROJECT_UNKNOWN", "projectId", project=project_id)
        access.require_role(user, project_id, Role.MEMBER)
        return project_id
    mine = Membership.objects.filter(user=user, role__in=[Role.MEMBER, Role.MAINTAINER])
    rows = Project.objects.all() if user.is_superuser else Project.objects.filter(pk__in=mine.values("project"))
    known = list(rows.order_by("name").values_list("pk", flat=True)[:20])
    if len(known) != 1:
        raise ApiError(400, "PROJECT_REQUIRED", "projectId", allowed=", ".join(known) or "–")
    return known[0]
