"""Changes a task's state: every transition of `states.TRANSITIONS` is written by `change_state` and nowhere else."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from django.db import connection, transaction
from django.db.models import QuerySet

from apps.common.clock import now
from apps.training.core import notifications, predecessors, trace_context, wakeups
from apps.training.models import Event, Task
from apps.training.states import FINAL_STATES, TRANSITIONS, TaskKind, TaskState
from apps.training.states.deadlines import get_state_timeout


class StaleTaskError(Exception):
    """Raised if another process changed the task since it was loaded, or has claimed it: load it again and decide
    anew."""


def filter_unchanged(task: Task) -> QuerySet[Task]:
    """Return a query for the task's row that matches only if it is unchanged since it was loaded and, if a pass loaded
    it, still claimed by that pass."""
    rows = Task.objects.filter(pk=task.pk, state=task.state, attempt=task.attempt)
    return rows if task.claim is None else rows.filter(claimed_at=task.claim.at)


@contextmanager
def lock_task(task: Task) -> Iterator[None]:
    """Open a transaction in which no other process changes the task. Raises StaleTaskError, before anything is written,
    if the row has changed since it was loaded, or is claimed by another pass."""
    with transaction.atomic():
        if filter_unchanged(task).select_for_update(no_key=True).values_list("pk").first() is None:
            raise StaleTaskError(task.pk)
        yield


def change_state(
    task: Task, to: TaskState, reason: str = "", params: Mapping[str, Any] | None = None, **fields: Any
) -> None:
    """Change the task's state from the one it was loaded with, set `fields` as well, and record the event, all in one
    transaction (the caller's, if there is one). Updates the object, too. Raises StaleTaskError if the row has changed
    since it was loaded, and ValueError for a transition that does not exist."""
    come_from = TaskState(task.state)
    if to not in TRANSITIONS[come_from]:
        raise ValueError(f"no arrow from {come_from} to {to}")
    moment = now()
    values: dict[str, Any] = {
        "state": to,
        "state_since": moment,
        "reason": reason,
        "reason_params": dict(params or {}),
        "deadline_at": None if to in FINAL_STATES else moment + get_state_timeout(TaskKind(task.kind), to),
        **({"ended_at": moment, "due_at": None, "claimed_at": None} if to in FINAL_STATES else {}),
        **({"started_at": moment} if to is TaskState.RUNNING and task.started_at is None else {}),
        **fields,
    }
    with transaction.atomic():
        if not filter_unchanged(task).update(**values):
            raise StaleTaskError(task.pk)
        attempt = values.get("attempt", task.attempt)
        record_event(
            task.pk, attempt, "state", f"STATE_{to.upper()}", {"from": come_from, "reason": reason, **(params or {})}
        )
        if to in FINAL_STATES:
            predecessors.wake_followers(task.pk)
        notifications.notify_state_change(task, to, reason, params or {})
        wakeups.publish_change(task.pk, "status")
    for name, value in values.items():
        setattr(task, name, value)
    if to in FINAL_STATES:
        task.claim = None


def explain_wait(task: Task, reason: str, params: Mapping[str, Any]) -> None:
    """Store why the task waits in its state. Writes no event, and nothing if the reason is stored already. Raises
    StaleTaskError."""
    if (task.reason, task.reason_params) == (reason, dict(params)):
        return
    with transaction.atomic():
        if not filter_unchanged(task).update(reason=reason, reason_params=dict(params)):
            raise StaleTaskError(task.pk)
        wakeups.publish_change(task.pk, "status")
    task.reason, task.reason_params = reason, dict(params)


def record_event(task_id: str, attempt: int, kind: str, code: str, params: Mapping[str, Any]) -> None:
    """Write an event of the task in the current transaction."""
    lock_row_order(task_id)
    Event.objects.create(task_id=task_id, attempt=attempt, at=now(), kind=kind, code=code, params=dict(params))
    trace_context.record_part(task_id, attempt, code)
    wakeups.publish_change(task_id, "event")


def lock_row_order(task_id: str) -> None:
    """Lock the task's row in the transaction that adds rows which streams read by id. PostgreSQL assigns ids before the
    commit: without this lock a row could appear behind a reader that has already seen a higher id."""
    if connection.features.has_select_for_update:
        Task.objects.select_for_update(no_key=True).filter(pk=task_id).values_list("pk").first()
