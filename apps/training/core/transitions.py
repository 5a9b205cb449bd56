"""The one writer of a task's state: every arrow of `states.ARROWS` is walked in `move`, and nowhere else."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from django.db import connection, transaction
from django.db.models import QuerySet

from apps.common.clock import now
from apps.training.core import notifications, trace_context, wakeups
from apps.training.models import Event, Task
from apps.training.states import ARROWS, FINAL, Kind, State
from apps.training.states.limits import lasting


class Stale(Exception):
    """Somebody else moved the task meanwhile, or has it now: load it again and look anew."""


def same(task: Task) -> QuerySet[Task]:
    """Its row, where it is still as it was loaded and, if a pass has loaded it, still that pass's."""
    rows = Task.objects.filter(pk=task.pk, state=task.state, attempt=task.attempt)
    return rows if task.claim is None else rows.filter(claimed_at=task.claim.at)


@contextmanager
def owned(task: Task) -> Iterator[None]:
    """A transaction in which nobody else moves the task. Raises Stale, before anything is written, where its row is not
    there any more as it was loaded, or is another pass's."""
    with transaction.atomic():
        if same(task).select_for_update(no_key=True).values_list("pk").first() is None:
            raise Stale(task.pk)
        yield


def move(task: Task, to: State, reason: str = "", params: Mapping[str, Any] | None = None, **fields: Any) -> None:
    """Moves `task` from the state and attempt it was loaded with, sets `fields` along, and records the event; all in
    one transaction (the caller's, if there is one). Updates the object too. Raises Stale when the row is not there any
    more as it was loaded."""
    come_from = State(task.state)
    if to not in ARROWS[come_from]:
        raise ValueError(f"no arrow from {come_from} to {to}")
    moment = now()
    values: dict[str, Any] = {
        "state": to,
        "state_since": moment,
        "reason": reason,
        "reason_params": dict(params or {}),
        "deadline_at": None if to in FINAL else moment + lasting(Kind(task.kind), to),
        **({"ended_at": moment, "due_at": None, "claimed_at": None} if to in FINAL else {}),
        **({"started_at": moment} if to is State.RUNNING and task.started_at is None else {}),
        **fields,
    }
    with transaction.atomic():
        if not same(task).update(**values):
            raise Stale(task.pk)
        attempt = values.get("attempt", task.attempt)
        record(
            task.pk, attempt, "state", f"STATE_{to.upper()}", {"from": come_from, "reason": reason, **(params or {})}
        )
        notifications.moved(task, to, reason, params or {})
        wakeups.changed(task.pk, "status")
    for name, value in values.items():
        setattr(task, name, value)
    if to in FINAL:
        task.claim = None


def explain(task: Task, reason: str, params: Mapping[str, Any]) -> None:
    """Says why the task waits where it is. No event, and no write when it is known already."""
    if (task.reason, task.reason_params) == (reason, dict(params)):
        return
    with transaction.atomic():
        if not same(task).update(reason=reason, reason_params=dict(params)):
            raise Stale(task.pk)
        wakeups.changed(task.pk, "status")
    task.reason, task.reason_params = reason, dict(params)


def record(task_id: str, attempt: int, kind: str, code: str, params: Mapping[str, Any]) -> None:
    """Writes an event in the current transaction."""
    in_order(task_id)
    Event.objects.create(task_id=task_id, attempt=attempt, at=now(), kind=kind, code=code, params=dict(params))
    trace_context.noted(task_id, attempt, code)
    wakeups.changed(task_id, "event")


def in_order(task_id: str) -> None:
    """To be called in the transaction that adds rows which streams read by id. PostgreSQL gives ids out before the
    commit: without this lock a row could appear behind a reader who has already seen a higher id."""
    if connection.features.has_select_for_update:
        Task.objects.select_for_update(no_key=True).filter(pk=task_id).values_list("pk").first()
