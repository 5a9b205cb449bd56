"""Endpoints for what a project and its members may use, and what they use now."""

from apps.accounts import access
from apps.common.api import APIView, Body, Data, Query, Request, operation, page
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
        return presenters.limits(request.user, access.project(request.user, project_id), _use())

    @operation("putLimits", body=forms.LimitsRequest, data=forms.Limits)
    def put(self, request: Request, project_id: str, body: Body) -> Data:
        """Replaces all limits of the project (administrator). What already runs goes on."""
        project = access.project(request.user, project_id)
        limits.put(request.user, project, body)
        return presenters.limits(request.user, project, _use())


class UsersLimitsView(APIView):
    @operation("listUserLimits", query=forms.UserLimitsQuery, page=forms.UserLimits)
    def get(self, request: Request, project_id: str, query: Query) -> Data:
        """What each member of the project may use, and uses now."""
        project = access.project(request.user, project_id)
        members = presenters.members(project).filter(user__username__icontains=query["search"])
        return page(members, query, presenters.of_members(project, _use()))


class UserLimitsView(APIView):
    @operation("putUserLimits", body=forms.UserLimitsRequest, data=forms.UserLimits)
    def put(self, request: Request, project_id: str, username: str, body: Body) -> Data:
        """Limits of one member's own, in place of those that each has (maintainer)."""
        project = access.project(request.user, project_id)
        limits.put_of_user(request.user, project, username, body)
        return presenters.of_members(project, _use())(presenters.members(project).get(user__username=username))

    @operation("deleteUserLimits")
    def delete(self, request: Request, project_id: str, username: str) -> None:
        """From now on the member has the limits that each has (maintainer)."""
        limits.remove_of_user(request.user, access.project(request.user, project_id), username)


def _use() -> presenters.Now:
    moment = now()
    return presenters.Now(moment, load.held(moment), load.places(), quota.use())
