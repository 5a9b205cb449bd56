"""Moves a waiting task before another one of the same project and priority class."""

from collections.abc import Sequence

from django.db import transaction

from apps.accounts import audit
from apps.accounts.models import Role, User
from apps.common.clock import now
from apps.common.errors import ApiError
from apps.training.core import transitions, wakeups
from apps.training.models import Task
from apps.training.queue import load, outlook
from apps.training.services import actions
from fermi.scheduler.order import raise_class_by_age
from fermi.scheduler.snapshot import Priority, WaitingTask

PLACE_GAP_SECONDS = 1e-3
"""Distance between places that are assigned anew, in seconds."""


def move_in_queue(user: User, task_id: str, before: str | None) -> Task:
    """Move the task before the task `before`, or behind all others if it is None, and return it. The order between
    projects and classes remains the scheduler's. Raises ApiError 409 if one of them does not wait in that part of the
    queue."""
    task = actions.find_task(user, task_id, Role.MAINTAINER)
    with transaction.atomic():
        rows = load.filter_in_queue().select_for_update().filter(project=task.project_id)
        peers = [one for one in rows if _get_priority(one) == _get_priority(task)]
        if task.pk not in {one.pk for one in peers}:
            raise ApiError(409, "NOT_IN_QUEUE", task=task.name)
        if before == task.pk:
            raise ApiError(400, "MOVE_BEFORE_ITSELF", "before")
        others = sorted((one for one in peers if one.pk != task.pk), key=_get_order_key)
        at = next((number for number, one in enumerate(others) if one.pk == before), None)
        if at is None and before is not None:
            raise ApiError(409, "MOVE_TO_OTHERS", "before", task=task.name)
        _set_place(task, others, len(others) if at is None else at)
        params = {"by": user.username, **({"before": others[at].name} if at is not None else {})}
        transitions.record_event(task.pk, task.attempt, "state", "MOVED_IN_QUEUE", params)
        audit.record_event(user, "task.move", task.pk, project=task.project_id, before=before)
        wakeups.publish_change(task.pk, "status")
        wakeups.request_scheduling()
    outlook.clear_cache()
    task.refresh_from_db()
    return task


def _get_priority(task: Task) -> Priority:
    """Return the task's current priority class; it rises with its age."""
    one = WaitingTask(
        task.pk, task.project_id, "", task.cluster_id, task.created_at.timestamp(), priority=task.priority
    )
    return raise_class_by_age(one, now().timestamp())


def _get_order_key(task: Task) -> tuple[float, str]:
    """Return the sort key of `fermi.scheduler.order`."""
    return (task.created_at.timestamp() if task.place is None else task.place, task.pk)


def _set_place(task: Task, others: Sequence[Task], at: int) -> None:
    """Give the task a place between its new neighbours; if these are too close, all that follow get new places."""
    if not others:
        return
    keys = [_get_order_key(one)[0] for one in others]
    low = keys[at - 1] if at else keys[0] - 2.0
    high = keys[at] if at < len(keys) else keys[-1] + 2.0
    place = (low + high) / 2
    if low < place < high:
        Task.objects.filter(pk=task.pk).update(place=place)
        return
    for number, one in enumerate([task, *others[at:]], 1):
        Task.objects.filter(pk=one.pk).update(place=low + number * PLACE_GAP_SECONDS)
