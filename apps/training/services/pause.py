"""Pauses and resumes tasks. A paused task goes through the same steps as a preempted one.

asked to pause ─▶ its attempt saves and ends ─▶ it stays queued without environments ─▶ resumed ─▶ in the queue again
"""

from typing import Any

from django.db import transaction

from apps.accounts import audit
from apps.accounts.models import Role, User
from apps.common.clock import now
from apps.common.errors import ApiError
from apps.training.core import transitions, wakeups
from apps.training.models import Task
from apps.training.services import actions
from apps.training.states import ACTIVE_STATES, TaskState
from apps.training.states.deadlines import DEADLINES


def pause_task(user: User, task_id: str, code: str = "PAUSE_REQUESTED", **params: Any) -> Task:
    """Request a pause and return the task. Asking again changes nothing. `code`, `params`: the event that says who
    paused it, or why. Raises ApiError 409 if the task is not active."""
    task = actions.find_task(user, task_id, Role.MEMBER)
    if TaskState(task.state) not in ACTIVE_STATES or task.state == TaskState.STOPPING:
        raise ApiError(409, "PAUSE_NEEDS_ACTIVE", status=task.state)
    with transaction.atomic():
        fresh = Task.objects.filter(
            pk=task.pk, paused_at=None, stop_requested_at=None, state__in=ACTIVE_STATES - {TaskState.STOPPING}
        )
        who = {"by": user.username}
        if fresh.update(paused_at=now(), preempted_at=None, preempted_for=who):
            _record_request(user, task, "task.pause", code, {**who, **params})
    task.refresh_from_db()
    return task


def resume_task(user: User, task_id: str) -> Task:
    """Resume a paused task and return it: it continues from its newest checkpoint when its turn comes. Asking again
    changes nothing. Raises ApiError 409 if the task has ended."""
    task = actions.find_task(user, task_id, Role.MEMBER)
    if TaskState(task.state) not in ACTIVE_STATES:
        raise ApiError(409, "RESUME_NEEDS_PAUSED", status=task.state)
    with transaction.atomic():
        paused = Task.objects.filter(pk=task.pk, paused_at__isnull=False, stop_requested_at=None)
        if paused.update(paused_at=None, preempted_for={}):
            rests = Task.objects.filter(pk=task.pk, state=TaskState.QUEUED)
            rests.update(deadline_at=now() + DEADLINES[TaskState.QUEUED])
            _record_request(user, task, "task.resume", "RESUME_REQUESTED", {"by": user.username})
    task.refresh_from_db()
    return task


def _record_request(user: User, task: Task, action: str, code: str, params: dict[str, Any]) -> None:
    transitions.record_event(task.pk, task.attempt, "state", code, params)
    audit.record_event(user, action, task.pk, project=task.project_id)
    wakeups.publish_change(task.pk, "status")
    wakeups.enqueue_task(task.pk)
