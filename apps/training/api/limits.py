"""Endpoints for what a project and its members may use, and what they use now."""

from typing import Any

from rest_framework import serializers

from apps.accounts import access
from apps.common.api import APIView, Body, Data, Query, Request, operation, paginate_rows
from apps.common.clock import now
from apps.common.openapi import MAX_INT4, MAX_INT8, KeyField
from apps.common.pages import OrderingField, PageQuery
from apps.environments import quota
from apps.scheduling import presenters
from apps.scheduling.models import AtBudget
from apps.scheduling.services import limits
from apps.training.api.serializers import PRIORITY_CLASSES
from apps.training.queue import load

MAX_GPU_HOURS, MAX_BUDGET = 1e9, 1e11


def _build_count_field(source: str, message: str = "", *, low: int = 0) -> serializers.IntegerField:
    limits: dict[str, Any] = {"min_value": low, "max_value": MAX_INT4, "allow_null": True, "default": None}
    return serializers.IntegerField(source=source, help_text=message, **limits)


def _build_amount_field(source: str | None, most: float, message: str) -> serializers.FloatField:
    return serializers.FloatField(
        source=source, min_value=0, max_value=most, allow_null=True, default=None, help_text=message
    )


class LimitsRequest(serializers.Serializer):
    """Limits of a project. They replace all former ones: null, an empty list or a field that is left out means no
    limit."""

    weight = serializers.IntegerField(min_value=1, max_value=10_000, default=1, help_text="of its fair share")
    guaranteedGpus = _build_count_field(
        "guaranteed_gpus", "shared GPUs that it gets back by preemption; beyond them it borrows"
    )
    mostGpus = _build_count_field("most_gpus", "that its tasks hold at once")
    mostTasks = _build_count_field("most_tasks", "that hold environments at once")
    gpuHours = _build_amount_field("gpu_hours", MAX_GPU_HOURS, "in a month (UTC)")
    gpuTypes = serializers.ListField(source="gpu_types", child=KeyField(max_length=40), max_length=100, default=list)
    zones = serializers.ListField(child=KeyField(), max_length=100, default=list, help_text="ids or names")
    priorities = serializers.ListField(
        child=serializers.ChoiceField(PRIORITY_CLASSES),
        max_length=4,
        default=list,
        help_text="that members may use; empty = low, normal and high",
    )
    longestRunSeconds = _build_count_field(
        "longest_run_seconds", "that maxRunSeconds may be; then it has to be given", low=1
    )
    userMostGpus = _build_count_field("user_most_gpus", "of each member that has no limits of their own")
    userMostTasks = _build_count_field("user_most_tasks")
    userGpuHours = _build_amount_field("user_gpu_hours", MAX_GPU_HOURS, "in a month (UTC)")
    maxEnvironments = _build_count_field("max_environments", "that the platform makes for it; stopped ones count")
    maxEnvironmentGpus = _build_count_field("max_environment_gpus", "that those have which run")
    userMaxEnvironments = _build_count_field("user_max_environments", "of each member that has no limits of their own")
    userMaxEnvironmentGpus = _build_count_field("user_max_environment_gpus")
    budget = _build_amount_field(None, MAX_BUDGET, "of a month (UTC), in the platform's currency")
    atBudget = serializers.ChoiceField(
        AtBudget.choices,
        source="at_budget",
        default=AtBudget.WARN,
        help_text="what happens to new tasks once it is spent",
    )
    maxFileBytes = serializers.IntegerField(
        source="max_file_bytes", min_value=0, max_value=MAX_INT8, allow_null=True, default=None,
        help_text="that its files, and what its tasks write, may take together",
    )  # fmt: skip
    maxCacheBytes = serializers.IntegerField(
        source="max_cache_bytes", min_value=0, max_value=MAX_INT8, allow_null=True, default=None,
        help_text="of what libraries of its tasks keep in its cache; null: the platform's own limit",
    )  # fmt: skip


class LimitsUse(serializers.Serializer):
    gpus = serializers.IntegerField(help_text="that tasks hold now")
    sharedGpus = serializers.IntegerField(help_text="of these, on shared environments: what the guarantee counts")
    tasks = serializers.IntegerField(help_text="that hold environments now")
    gpuHours = serializers.FloatField(help_text="of this month (UTC) so far")
    cost = serializers.FloatField(help_text="of this month (UTC) so far")
    environments = serializers.IntegerField(help_text="that the platform made and that are there now")
    environmentGpus = serializers.IntegerField(help_text="of those of them that run")
    share = serializers.FloatField(help_text="GPU-seconds used, half of which are forgotten in seven days")


class Limits(serializers.Serializer):
    """Limits of a project. Null or an empty list means no limit."""

    projectId = serializers.CharField()
    weight = serializers.IntegerField()
    guaranteedGpus = serializers.IntegerField(allow_null=True)
    mostGpus = serializers.IntegerField(allow_null=True)
    mostTasks = serializers.IntegerField(allow_null=True)
    gpuHours = serializers.FloatField(allow_null=True)
    gpuTypes = serializers.ListField(child=serializers.CharField())
    zones = serializers.ListField(child=serializers.CharField(), help_text="ids")
    priorities = serializers.ListField(child=serializers.ChoiceField(PRIORITY_CLASSES))
    longestRunSeconds = serializers.IntegerField(allow_null=True)
    userMostGpus = serializers.IntegerField(allow_null=True)
    userMostTasks = serializers.IntegerField(allow_null=True)
    userGpuHours = serializers.FloatField(allow_null=True)
    maxEnvironments = serializers.IntegerField(allow_null=True)
    maxEnvironmentGpus = serializers.IntegerField(allow_null=True)
    userMaxEnvironments = serializers.IntegerField(allow_null=True)
    userMaxEnvironmentGpus = serializers.IntegerField(allow_null=True)
    budget = serializers.FloatField(allow_null=True)
    atBudget = serializers.ChoiceField(AtBudget.choices)
    maxFileBytes = serializers.IntegerField(allow_null=True)
    maxCacheBytes = serializers.IntegerField(allow_null=True, help_text="null: the platform's own limit")
    currency = serializers.CharField()
    updatedAt = serializers.DateTimeField(allow_null=True)
    updatedBy = serializers.CharField(help_text="empty: nobody yet")
    mayChange = serializers.BooleanField()
    use = LimitsUse()


class UserLimitsQuery(PageQuery):
    ordering = OrderingField("username", username="user__username")


class UserLimitsRequest(serializers.Serializer):
    """Limits of one member, in place of those that the project sets for each member. Null or a field that is left out
    means no limit."""

    mostGpus = _build_count_field("most_gpus", "that their tasks hold at once")
    mostTasks = _build_count_field("most_tasks", "that hold environments at once")
    gpuHours = _build_amount_field("gpu_hours", MAX_GPU_HOURS, "in a month (UTC)")
    maxEnvironments = _build_count_field("max_environments", "that the platform makes for them; stopped ones count")
    maxEnvironmentGpus = _build_count_field("max_environment_gpus", "that those have which run")


class UserUse(serializers.Serializer):
    gpus = serializers.IntegerField()
    tasks = serializers.IntegerField()
    gpuHours = serializers.FloatField()
    environments = serializers.IntegerField()
    environmentGpus = serializers.IntegerField()


class UserLimits(serializers.Serializer):
    username = serializers.CharField()
    mostGpus = serializers.IntegerField(allow_null=True)
    mostTasks = serializers.IntegerField(allow_null=True)
    gpuHours = serializers.FloatField(allow_null=True)
    maxEnvironments = serializers.IntegerField(allow_null=True)
    maxEnvironmentGpus = serializers.IntegerField(allow_null=True)
    own = serializers.BooleanField(help_text="false: what the project's limits say of each member")
    use = UserUse()


class LimitsView(APIView):
    @operation("getLimits", scope="projects:read", data=Limits)
    def get(self, request: Request, project_id: str) -> Data:
        """Return the limits of a project and what it uses now."""
        return presenters.serialize_limits(
            request.user, access.get_project(request.user, project_id), _load_current_usage()
        )

    @operation("putLimits", scope="projects:write", body=LimitsRequest, data=Limits)
    def put(self, request: Request, project_id: str, body: Body) -> Data:
        """Replace all limits of a project (administrator). Tasks that run already are not stopped."""
        project = access.get_project(request.user, project_id)
        limits.set_limits(request.user, project, body)
        return presenters.serialize_limits(request.user, project, _load_current_usage())


class UsersLimitsView(APIView):
    @operation("listUserLimits", scope="projects:read", query=UserLimitsQuery, page=UserLimits)
    def get(self, request: Request, project_id: str, query: Query) -> Data:
        """List the limits of each member of a project, and what they use now."""
        project = access.get_project(request.user, project_id)
        members = presenters.list_members(project).filter(user__username__icontains=query["search"])
        return paginate_rows(members, query, presenters.make_member_serializer(project, _load_current_usage()))


class UserLimitsView(APIView):
    @operation("putUserLimits", scope="projects:write", body=UserLimitsRequest, data=UserLimits)
    def put(self, request: Request, project_id: str, username: str, body: Body) -> Data:
        """Set limits for one member, in place of those that the project sets for each member (maintainer)."""
        project = access.get_project(request.user, project_id)
        limits.set_user_limits(request.user, project, username, body)
        return presenters.make_member_serializer(project, _load_current_usage())(
            presenters.list_members(project).get(user__username=username)
        )

    @operation("deleteUserLimits", scope="projects:write")
    def delete(self, request: Request, project_id: str, username: str) -> None:
        """Delete a member's own limits: those that the project sets for each member apply again (maintainer)."""
        limits.delete_user_limits(request.user, access.get_project(request.user, project_id), username)


def _load_current_usage() -> presenters.CurrentUsage:
    moment = now()
    return presenters.CurrentUsage(
        moment, load.load_running_tasks(moment), load.load_environments(), quota.count_usage()
    )
