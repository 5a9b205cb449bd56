"""Tasks that have to end before another one starts: their rows, and what happens when one of them ends.

A task waits for tasks that existed before it, so no circle can arise. Each of them makes the tasks that wait for it due
in the transaction in which it ends; a task that waits looks again by itself, too (`reconcile.predecessors`).
"""

from collections.abc import Mapping, Sequence
from typing import Any

from apps.common.clock import now
from apps.training.core import wakeups
from apps.training.models import Task, TaskPredecessor
from apps.training.states import ACTIVE_STATES, FINAL_STATES, TaskState
from fermi.planning.request import AfterRequest

ENDED = "ended"


def store_predecessors(task_id: str, after: Sequence[AfterRequest]) -> None:
    """Store what a new task waits for, in the transaction that creates it."""
    if after:
        TaskPredecessor.objects.bulk_create(
            TaskPredecessor(task_id=task_id, parent=one.task, number=number, on=one.on, checkpoint=one.checkpoint)
            for number, one in enumerate(after)
        )


def is_met(on: str, state: str) -> bool | None:
    """Return whether a task in `state` has ended as `on` says; None while it has not ended. A state of "" stands for a
    task that is gone."""
    if state and TaskState(state) not in FINAL_STATES:
        return None
    return bool(state) and on in (ENDED, state)


def wake_followers(task_id: str) -> None:
    """Make the tasks that wait for this one due, in the transaction in which it ends."""
    waiting = TaskPredecessor.objects.filter(parent=task_id, met_at=None, task__state=TaskState.QUEUED)
    if found := list(waiting.values_list("task", flat=True)):
        wakeups.enqueue_tasks(found)


def find_waiting_follower(task_id: str) -> str | None:
    """Return a task that has not started and needs this one: its end, or what it left; None if there is none."""
    waiting = TaskPredecessor.objects.filter(parent=task_id, task__state__in=ACTIVE_STATES)
    return waiting.values_list("task", flat=True).first()


def list_awaited(task_ids: Sequence[str]) -> set[str]:
    """Return those of these tasks that an active task came after, and so may read."""
    rows = TaskPredecessor.objects.filter(parent__in=task_ids, task__state__in=ACTIVE_STATES)
    return set(rows.values_list("parent", flat=True))


def record_all_met(task_id: str) -> None:
    """Store that the task waits for no other task any more."""
    TaskPredecessor.objects.filter(task=task_id, met_at=None).update(met_at=now())


def load_parents(rows: Sequence[TaskPredecessor]) -> dict[str, Task]:
    """Return the tasks that these rows name, by id, with their clusters; those that were deleted are left out."""
    return Task.objects.select_related("cluster").in_bulk([row.parent for row in rows])


def keep_possible(request: Mapping[str, Any]) -> dict[str, Any]:
    """Return the request of a task for a retry or a clone, without the conditions that can no longer hold: whoever
    runs it again has decided that it does not need them. Those that hold are kept, for what the task is given."""
    after = request.get("after")
    if not isinstance(after, list):
        return dict(request)
    entries = [one for one in after if isinstance(one, Mapping) and isinstance(one.get("task"), str)]
    states = dict(Task.objects.filter(pk__in=[one["task"] for one in entries]).values_list("pk", "state"))
    kept = [one for one in entries if is_met(one.get("on", "succeeded"), states.get(one["task"], "")) is not False]
    rest = {name: value for name, value in request.items() if name != "after"}
    return {**rest, "after": kept} if kept else rest


def serialize_predecessors(task_id: str) -> list[dict[str, Any]]:
    """Return what the task came after, as the API answers it."""
    rows = list(TaskPredecessor.objects.filter(task=task_id))
    parents = dict[str, tuple[str, str]]()
    for key, name, state in Task.objects.filter(pk__in=[row.parent for row in rows]).values_list("pk", "name", "state"):
        parents[key] = name, state
    return [
        {
            "taskId": row.parent,
            "name": parents.get(row.parent, ("", ""))[0],
            "status": parents.get(row.parent, ("", ""))[1] or None,
            "on": row.on,
            "checkpoint": row.checkpoint,
            "metAt": row.met_at,
        }
        for row in rows
    ]
