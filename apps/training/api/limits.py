"""Endpoints for what a project and its members may use, and what they use now."""

from apps.accounts import access
from apps.common.api import APIView, Body, Data, Query, Request, operation, paginate_rows
from apps.common.clock import now
from apps.environments import quota
from apps.scheduling import presenters
from apps.scheduling.services import limits
from apps.training.api import limits_forms as forms
from apps.training.queue import load


class LimitsView(APIView):
    @operation("getLimits", data=forms.Limits)
    def get(self, request: Request, project_id: str) -> Data:
        """What the project may use, and what it uses now."""
        return presenters.serialize_limits(
            request.user, access.get_project(request.user, project_id), _load_current_usage()
        )

    @operation("putLimits", body=forms.LimitsRequest, data=forms.Limits)
    def put(self, request: Request, project_id: str, body: Body) -> Data:
        """Replaces all limits of the project (administrator). What already runs goes on."""
        project = access.get_project(request.user, project_id)
        limits.set_limits(request.user, project, body)
        return presenters.serialize_limits(request.user, project, _load_current_usage())


class UsersLimitsView(APIView):
    @operation("listUserLimits", query=forms.UserLimitsQuery, page=forms.UserLimits)
    def get(self, request: Request, project_id: str, query: Query) -> Data:
        """What each member of the project may use, and uses now."""
        project = access.get_project(request.user, project_id)
        members = presenters.list_members(project).filter(user__username__icontains=query["search"])
        return paginate_rows(members, query, presenters.make_member_serializer(project, _load_current_usage()))


class UserLimitsView(APIView):
    @operation("putUserLimits", body=forms.UserLimitsRequest, data=forms.UserLimits)
    def put(self, request: Request, project_id: str, username: str, body: Body) -> Data:
        """Limits of one member's own, in place of those that each has (maintainer)."""
        project = access.get_project(request.user, project_id)
        limits.set_user_limits(request.user, project, username, body)
        return presenters.make_member_serializer(project, _load_current_usage())(
            presenters.list_members(project).get(user__username=username)
        )

    @operation("deleteUserLimits")
    def delete(self, request: Request, project_id: str, username: str) -> None:
        """From now on the member has the limits that each has (maintainer)."""
        limits.delete_user_limits(request.user, access.get_project(request.user, project_id), username)


def _load_current_usage() -> presenters.CurrentUsage:
    moment = now()
    return presenters.CurrentUsage(
        moment, load.load_running_tasks(moment), load.load_environments(), quota.count_usage()
    )
