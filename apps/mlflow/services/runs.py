"""Runs of tasks. Each task has one run with its own id: the first one that its rank 0 begins, in each attempt. What its
ranks begin besides is a run below it."""

import uuid
from collections.abc import Mapping
from dataclasses import dataclass

from django.db import transaction

from apps.common.clock import now
from apps.common.errors import ApiError
from apps.common.row_bounds import check_row_limit
from apps.mlflow.callers import Caller, from_milliseconds
from apps.mlflow.models import MAX_NAME_LENGTH, EntryKind, RunEntry, TrackedRun
from apps.mlflow.services import experiments
from apps.training.public import FINAL_STATES, Task, TaskState

PARENT_TAG, NAME_TAG = "mlflow.parentRunId", "mlflow.runName"
RUN_STATUSES = ("RUNNING", "SCHEDULED", "FINISHED", "FAILED", "KILLED")
STATUS_BY_STATE = {
    TaskState.SUCCEEDED: "FINISHED",
    TaskState.FAILED: "FAILED",
    TaskState.STOPPED: "KILLED",
    TaskState.RUNNING: "RUNNING",
    TaskState.STOPPING: "RUNNING",
}
"""Others are SCHEDULED."""


@dataclass(frozen=True, slots=True)
class FoundRun:
    """A run of a task. `row`: None for the own run of a task that has logged nothing here."""

    task: Task
    row: TrackedRun | None

    @property
    def id(self) -> str:
        return self.row.pk if self.row else self.task.pk

    @property
    def is_own(self) -> bool:
        """Return True for the task's own run."""
        return self.row is None or self.row.own_task_id is not None

    @property
    def status(self) -> str:
        """Return the run's status: that of its task, once the task has ended or where the run has none."""
        state = self.task.state
        status = self.row.status if self.row else ""
        if state in FINAL_STATES and (self.is_own or status not in ("FINISHED", "FAILED", "KILLED")):
            return STATUS_BY_STATE[TaskState(state)]
        return status or STATUS_BY_STATE.get(TaskState(state), "SCHEDULED")


def find_run(caller: Caller, run_id: str) -> FoundRun:
    """Return a run that the caller may read. Raises ApiError 404."""
    rows = TrackedRun.objects.select_related("task__project", "task__owner", "experiment")
    row = caller.filter_visible(rows, "task__project").filter(pk=run_id).first()
    if row:
        return FoundRun(row.task, row)
    tasks = caller.filter_visible(Task.trainings.select_related("project", "owner"))
    if task := tasks.filter(pk=run_id).first():
        return FoundRun(task, None)
    raise ApiError(404, "MLFLOW_RUN_UNKNOWN", "run_id", run=run_id)


def open_run(caller: Caller, run_id: str) -> TrackedRun:
    """Return a run that the caller may write to, which is of the calling ranks' task. Raises ApiError."""
    found = find_run(caller, run_id)
    task = caller.require_task()
    if found.task.pk != task.pk:
        raise ApiError(403, "MLFLOW_OTHER_TASK", "run_id", run=run_id, task=task.pk)
    if found.row is None:
        row, _ = TrackedRun.objects.get_or_create(pk=task.pk, defaults={"task": task, "own_task": task})
        return row
    if found.row.deleted_at:
        raise ApiError(400, "MLFLOW_RUN_DELETED", "run_id", run=run_id)
    return found.row


def begin_run(
    caller: Caller, experiment_id: str, name: str, user: str, started: int | None, tags: Mapping[str, str]
) -> TrackedRun:
    """Return the task's own run, if rank 0 calls, nothing has begun it in this attempt, and it is to be no other run's
    child; else a new run below it."""
    task = caller.require_task()
    experiment = experiments.get_experiment(caller, experiment_id or experiments.DEFAULT_ID)
    if experiment.is_deleted:
        raise ApiError(400, "MLFLOW_EXPERIMENT_DELETED", "experiment_id", experiment=experiment.id)
    values = {
        "experiment_id": experiment.row.pk if experiment.row else None,
        "name": name or tags.get(NAME_TAG, "") or task.name,
        "user_name": user[:MAX_NAME_LENGTH],
        "status": "RUNNING",
        "attempt": task.attempt,
        "started_at": from_milliseconds(started) or now(),
    }
    with transaction.atomic():
        TrackedRun.objects.get_or_create(pk=task.pk, defaults={"task": task, "own_task": task})
        if PARENT_TAG not in tags and caller.rank == 0:
            mine = TrackedRun.objects.filter(pk=task.pk, attempt__lt=task.attempt)
            if mine.update(**values, ended_at=None, deleted_at=None):
                return TrackedRun.objects.get(pk=task.pk)
        check_row_limit("mlflow-runs", TrackedRun.objects.filter(task=task))
        row = TrackedRun.objects.create(pk=uuid.uuid4().hex, task=task, **values)
        if PARENT_TAG not in tags:
            RunEntry.objects.create(run=row, kind=EntryKind.TAG, key=PARENT_TAG, value=task.pk)
        return row


def change_run(caller: Caller, run_id: str, status: str, ended: int | None, name: str) -> FoundRun:
    """Change a run's status, end and name, and return it. Raises ApiError."""
    row = open_run(caller, run_id)
    changed: dict[str, object] = {}
    if status:
        changed |= {"status": status, "attempt": caller.attempt}
        if status == "RUNNING":
            changed["ended_at"] = None
            if row.started_at is None:
                changed["started_at"] = now()
    if ended and status != "RUNNING":
        changed["ended_at"] = from_milliseconds(ended)
    if name:
        changed["name"] = name
    if changed:
        TrackedRun.objects.filter(pk=row.pk).update(**changed)
    return find_run(caller, run_id)


def mark_deleted(caller: Caller, run_id: str, *, deleted: bool) -> None:
    """Delete a run below the task's own, or restore it. Raises ApiError 403 for the task's own run."""
    task = caller.require_task()
    found = find_run(caller, run_id)
    if found.task.pk != task.pk:
        raise ApiError(403, "MLFLOW_OTHER_TASK", "run_id", run=run_id, task=task.pk)
    if found.is_own:
        raise ApiError(403, "MLFLOW_OWN_RUN_STAYS", "run_id", run=run_id)
    TrackedRun.objects.filter(pk=run_id).update(deleted_at=now() if deleted else None)
