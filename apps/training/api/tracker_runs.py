"""Endpoints for the runs that a task's script began at experiment trackers."""

from typing import Any

from rest_framework import serializers

from apps.common.api import APIView, Body, Data, Request, operation
from apps.training.api.serializers import STATES
from apps.training.core.tracker_runs import find_own_run
from apps.training.services import wandb_sync
from apps.training.services.wandb_sync import RunState


class TrackerRunItem(serializers.Serializer):
    source = serializers.CharField(help_text="wandb")  # type: ignore[assignment]
    runId = serializers.CharField()
    entity = serializers.CharField()
    project = serializers.CharField()
    name = serializers.CharField()
    url = serializers.CharField(help_text="of its page; empty where it is not known")
    state = serializers.ChoiceField(
        ["online", "offline", "syncing", "synced", "gone"],
        help_text="offline: its files are in the outputs and can be synced; gone: they are not",
    )
    folder = serializers.CharField(help_text="of a run that was offline: its files, in the outputs")
    attempt = serializers.IntegerField(help_text="the newest one in which it was begun or resumed")
    rank = serializers.IntegerField()
    at = serializers.DateTimeField()
    syncTaskId = serializers.CharField(allow_null=True, help_text="the newest task that sends its files")


class TrackerRunList(serializers.Serializer):
    items = TrackerRunItem(many=True)
    own = TrackerRunItem(allow_null=True, help_text="the task's own run: of rank 0, the first one")
    canSync = serializers.BooleanField(help_text="there are runs that are offline, and the task has ended")


class TrackerSyncRequest(serializers.Serializer):
    environmentId = serializers.CharField(
        source="environment_id", required=False, max_length=100,
        help_text="where it runs; by default the first one of the task. It needs wandb and a way to the server",
    )  # fmt: skip
    secret = serializers.CharField(
        required=False, max_length=63,
        help_text="secret of the project with the key; by default the one that the task names, or WANDB_API_KEY",
    )  # fmt: skip


class TrackerSyncCreated(serializers.Serializer):
    taskId = serializers.CharField()
    status = serializers.ChoiceField(STATES)


class TrackerRunsView(APIView):
    @operation("listTrackerRuns", scope="tasks:read", data=TrackerRunList)
    def get(self, request: Request, task_id: str) -> Data:
        """List the runs that the task's script began at W&B: at most 100, those of rank 0 first."""
        found = wandb_sync.list_runs(request.user, task_id)
        states = {id(one.row): one for one in found}
        own = find_own_run(one.row for one in found)
        return {
            "items": [_serialize(one) for one in found],
            "own": own and _serialize(states[id(own)]),
            "canSync": wandb_sync.may_sync(found),
        }


class TrackerSyncView(APIView):
    @operation("syncTrackerRuns", scope="tasks:write", body=TrackerSyncRequest, data=TrackerSyncCreated, status=201)
    def post(self, request: Request, task_id: str, body: Body) -> Data:
        """Create a task that sends the runs which were offline to W&B (member), with a secret of the project as the
        key. Runs that were sent are not sent again."""
        task = wandb_sync.sync_runs(request.user, task_id, **body)
        return {"taskId": task.pk, "status": task.state}


def _serialize(one: RunState) -> dict[str, Any]:
    row = one.row
    return {
        "source": row.source,
        "runId": row.run_id,
        "entity": row.entity,
        "project": row.project,
        "name": row.name,
        "url": one.url,
        "state": one.state,
        "folder": row.folder,
        "attempt": row.attempt,
        "rank": row.rank,
        "at": row.at,
        "syncTaskId": row.sync_task_id,
    }
