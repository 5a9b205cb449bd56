"""Decides whether a task may start that came after others (`after` of its request), and what it is given of them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from apps.common.clock import now
from apps.training.core import checkpoint_choice, predecessors, transitions
from apps.training.models import Task, TaskPredecessor
from apps.training.presenters.checkpoint_marks import find_marks
from apps.training.states import TaskState
from apps.training.states.deadlines import DEADLINES
from apps.training.states.reasons import TaskReason
from fermi.jobs.spec import AFTER_CHECKPOINT, Cause, JobSpec

_WANTED = {"succeeded": "AFTER_TO_SUCCEED", "failed": "AFTER_TO_FAIL", "ended": "AFTER_TO_END"}
_STATES = {
    TaskState.INITIALIZING: "TASK_IS_INITIALIZING",
    TaskState.QUEUED: "TASK_IS_QUEUED",
    TaskState.STARTING: "TASK_IS_STARTING",
    TaskState.RUNNING: "TASK_IS_RUNNING",
    TaskState.STOPPING: "TASK_IS_STOPPING",
    TaskState.SUCCEEDED: "TASK_IS_SUCCEEDED",
    TaskState.FAILED: "TASK_IS_FAILED",
    TaskState.STOPPED: "TASK_IS_STOPPED",
}
_GONE = "TASK_IS_GONE"


@dataclass(frozen=True, slots=True)
class PredecessorVerdict:
    """What follows from the tasks that a task came after. `ends`, `to`: it can no longer start, and ends so; `waits`:
    why it waits; `met`: they have ended as needed since the last time, and `given` is what the task's spec gets."""

    ends: Cause | None = None
    to: TaskState = TaskState.STOPPED
    waits: Cause | None = None
    met: bool = False
    given: Mapping[str, str] = field(default_factory=dict)


def judge_predecessors(task: Task) -> PredecessorVerdict:
    """Return the verdict. Raises BackendError and UnknownNameError if the engine that has a checkpoint cannot be
    asked."""
    rows = list(TaskPredecessor.objects.filter(task=task))
    if all(row.met_at for row in rows):
        return PredecessorVerdict()
    parents = predecessors.load_parents(rows)
    states = [(row, predecessors.is_met(row.on, _get_state(parents, row))) for row in rows]
    for row, met in states:
        if met is False:
            return PredecessorVerdict(ends=Cause(TaskReason.AFTER_NOT_MET, {"first": _describe(row, parents)}))
    if open_rows := [row for row, met in states if met is None]:
        params: dict[str, Any] = {"first": _describe(open_rows[0], parents)}
        if len(open_rows) > 1:
            params["more"] = len(open_rows) - 1
        return PredecessorVerdict(waits=Cause(TaskReason.WAITS_FOR_TASK, params))
    parent = parents[rows[0].parent]
    checkpoint = _find_checkpoint(parent, rows[0].checkpoint)
    if not checkpoint and _needs_checkpoint(task):
        params = {"name": parent.name, "task": parent.pk}
        return PredecessorVerdict(ends=Cause(TaskReason.AFTER_CHECKPOINT_MISSING, params), to=TaskState.FAILED)
    given = {"after_checkpoint": checkpoint, "after_outputs": str(parent.spec.get("output_dir") or "")}
    return PredecessorVerdict(met=True, given=given)


def record_met(task: Task, verdict: PredecessorVerdict) -> None:
    """Store in the current transaction that the task may start, what it is given, and until when it may now wait for
    its environments."""
    deadline = now() + DEADLINES[TaskState.QUEUED]
    Task.objects.filter(pk=task.pk).update(spec={**task.spec, **verdict.given}, deadline_at=deadline)
    predecessors.record_all_met(task.pk)
    found = {name: value for name, value in (("checkpoint", verdict.given["after_checkpoint"]),) if value}
    transitions.record_event(task.pk, 0, "state", "AFTER_MET", found)


def _get_state(parents: Mapping[str, Task], row: TaskPredecessor) -> str:
    return parents[row.parent].state if row.parent in parents else ""


def _describe(row: TaskPredecessor, parents: Mapping[str, Task]) -> dict[str, Any]:
    """Return a parameter that is itself a text: which task, how it has to end, and what it is."""
    parent = parents.get(row.parent)
    status = _STATES[TaskState(parent.state)] if parent else _GONE
    return {
        "code": _WANTED[row.on],
        "name": parent.name if parent else row.parent,
        "task": row.parent,
        "status": {"code": status},
    }


def _find_checkpoint(parent: Task, which: str) -> str:
    """Return the path of the parent's checkpoint; empty if it has none that still exists. Where nothing says which is
    the best, it is the newest."""
    newest = checkpoint_choice.find_newest_checkpoint(parent)
    if newest is None or which != "best":
        return newest or ""
    return checkpoint_choice.find_existing(parent, [find_marks(parent).best]) or newest


def _needs_checkpoint(task: Task) -> bool:
    """Return True if the task's arguments or variables have the placeholder of a checkpoint, which would be empty."""
    job = JobSpec.from_json(task.spec)
    entry = job.entrypoint
    texts = [*(entry.args if entry else ()), *(entry.command if entry else ()), *job.env.values()]
    return any(AFTER_CHECKPOINT in text for text in texts)
