"""Endpoints for the telemetry of tasks and environments."""

from apps.clusters import selectors
from apps.common.api import APIView, Data, Query, Request, operation
from apps.common.errors import ApiError
from apps.telemetry.api import serializers
from apps.training.reports import telemetry
from apps.training.services import actions


class TaskTelemetryView(APIView):
    @operation(
        "getTaskTelemetry", scope="tasks:read", query=serializers.TaskTelemetryQuery, data=serializers.TaskTelemetry
    )
    def get(self, request: Request, task_id: str, query: Query) -> Data:
        """Return what the task's nodes, GPUs and ranks used, as series on one time grid with at most `points` points.
        Kept for a year; older values are coarser."""
        return telemetry.read_task_series(actions.find_task_of_any_kind(request.user, task_id), query)


class TaskUseView(APIView):
    @operation("getTaskUse", scope="tasks:read", data=serializers.TaskUse)
    def get(self, request: Request, task_id: str) -> Data:
        """Return what each rank uses now. Cheap enough to be polled every few seconds, for tasks of any size."""
        return telemetry.read_current_use(actions.find_task_of_any_kind(request.user, task_id))


class EnvironmentTelemetryView(APIView):
    @operation(
        "getEnvironmentTelemetry",
        scope="environments:read",
        query=serializers.TelemetryQuery,
        data=serializers.MachineTelemetry,
    )
    def get(self, request: Request, environment_id: str, query: Query) -> Data:
        """Return what an environment used, and which tasks held it."""
        environment = (
            selectors.list_visible_environments(request.user)
            .select_related("cluster")
            .filter(pk=environment_id)
            .first()
        )
        if environment is None:
            raise ApiError(404, "NOT_FOUND")
        return telemetry.read_environment_series(environment, request.user, query)
