"""Sends messages that have tasks processed sooner. None of them is needed: the sweep finds every due task by itself."""

from collections.abc import Iterable, Sequence
from functools import partial

from django.db import transaction

from apps.common import pass_claims as schedule
from apps.common.clock import now
from apps.common.sql import split_keys
from apps.common.wakeups import enqueue_task as _send
from apps.common.wakeups import publish_soon as _say
from apps.training.models import Queue, Task
from apps.training.states import TaskState


def enqueue_task(task_id: str) -> None:
    """Have the task processed as soon as the current transaction is committed."""
    moment = now()
    Task.objects.filter(pk=task_id, due_at__gt=moment).update(due_at=moment)
    enqueue_due_task(task_id)


def enqueue_tasks(task_ids: Iterable[str]) -> None:
    """Do the same for many tasks, in few statements and one message per slice."""
    moment = now()
    for ids in split_keys(task_ids):
        schedule.update_rows(Task.objects.filter(pk__in=ids, due_at__gt=moment), due_at=moment)
        transaction.on_commit(partial(_send, "training.reconcile", *ids))


def enqueue_due_task(task_id: str) -> None:
    """Send the message for a task that is due already, once the transaction is committed."""
    transaction.on_commit(lambda: _send("training.reconcile", task_id))


def enqueue_hinted_tasks(task_ids: Sequence[str]) -> None:
    """Send the message for tasks that became due during their pass, because a hint came."""
    hint = ("training.reconcile", task_ids[0]) if len(task_ids) == 1 else ("training.sweep",)
    transaction.on_commit(lambda: _send(*hint))


def enqueue_waiting_tasks() -> None:
    """Request a scheduling pass, and have queued tasks processed that wait for a reason of their own, because
    environments became free or usable again."""
    moment = now()
    not_in_line = Task.objects.filter(state=TaskState.QUEUED, in_line_at=None, paused_at=None, due_at__gt=moment)
    if schedule.update_rows(not_in_line, due_at=moment) + request_scheduling(send=False):
        transaction.on_commit(lambda: _send("training.sweep"))


def request_scheduling(*, send: bool = True) -> int:
    """Request a scheduling pass after something changed that it depends on; return 1 if any task waits for one, else 0.
    `send`: also send the message that starts it."""
    waits = Task.objects.filter(state=TaskState.QUEUED, in_line_at__isnull=False).exists()
    if not waits:
        return 0
    moment = now()
    if not Queue.objects.filter(pk=1).update(due_at=moment):
        Queue.objects.get_or_create(pk=1, defaults={"due_at": moment})
    if send:
        transaction.on_commit(lambda: _send("training.sweep"))
    return 1


def publish_change(task_id: str, kind: str) -> None:
    """Publish to open streams that the task changed (`kind`: status, event, metric, log), once the transaction is
    committed."""
    transaction.on_commit(lambda: _publish(task_id, kind))


def _publish(task_id: str, kind: str) -> None:
    _say(f"task:{task_id}", {"kind": kind})
    if kind == "status":
        _say("tasks", {"id": task_id})
