"""Undoes what was done, as far as it can be undone."""

from collections.abc import Sequence

from django.db import transaction

from apps.accounts import access, audit, trail
from apps.accounts.models import AuditEvent, User
from apps.agents import selectors
from apps.common.errors import ApiError
from apps.training.public import (
    FINAL_STATES,
    Task,
    find_newest_checkpoint,
    find_task,
    pause_task,
    resume_task,
    retry_task,
    stop_task,
)
from fermi.jobs.spec import Problem

MAX_KEY_DIGITS = 18

UNDOABLE = {
    "task.create": "stop",
    "task.stop": "retry",
    "task.pause": "resume",
    "task.resume": "pause",
}
"""What undoes an action."""
UNDO_ACTION = "audit-event.undo"
"""The audit trail's action of undoing; its target is the id of the event."""


def find_event(user: User, key: str) -> AuditEvent:
    """Return the event, if the user did it, maintains its project, or it was done with a token whose purse the user may
    read. Raises ApiError 404."""
    known = key.isascii() and key.isdecimal() and len(key) <= MAX_KEY_DIGITS
    event = AuditEvent.objects.filter(pk=int(key)).first() if known else None
    if event is None or not (
        (event.actor_id == user.pk and user.token_rights is None)
        or (event.token and selectors.list_token_events(user, event.token).filter(pk=event.pk).exists())
        or trail.list_events(user).filter(pk=event.pk).exists()
    ):
        raise ApiError(404, "NOT_FOUND")
    return event


def undo_event(user: User, key: str) -> Task:
    """Undo an event with the user's own rights and return its task: stop one that was created, continue one that was
    stopped from its newest checkpoint, resume or pause. An event is undone once. Raises ApiError 409 with the reason
    where that is not possible."""
    event = find_event(user, key)
    if event.action not in UNDOABLE:
        raise _make_error(_refuse(event))
    task = find_task(user, event.target)
    with transaction.atomic():
        AuditEvent.objects.select_for_update(of=("self",)).get(pk=event.pk)
        if obstacle := _find_obstacle(event, task, is_undone=bool(_list_undone([event.pk]))):
            raise _make_error(obstacle)
        audit.record_event(user, UNDO_ACTION, str(event.pk), project=event.project_id, undone=event.action)
        match event.action:
            case "task.create":
                return stop_task(user, task.pk)
            case "task.stop":
                return retry_task(user, task.pk)
            case "task.pause":
                return resume_task(user, task.pk)
        return pause_task(user, task.pk)


def find_obstacles(user: User, events: Sequence[AuditEvent]) -> dict[int, Problem]:
    """Return why events cannot be undone now, by their ids; without those that can be."""
    named = {event.target for event in events if event.action in UNDOABLE}
    tasks = access.filter_visible(Task.objects.filter(pk__in=named), user).in_bulk()
    undone = _list_undone([event.pk for event in events if event.action in UNDOABLE])
    found = {
        event.pk: _find_obstacle(event, tasks.get(event.target), is_undone=str(event.pk) in undone) for event in events
    }
    return {key: obstacle for key, obstacle in found.items() if obstacle}


def _list_undone(keys: Sequence[int]) -> set[str]:
    rows = AuditEvent.objects.filter(action=UNDO_ACTION, target__in=[str(key) for key in keys])
    return set(rows.values_list("target", flat=True))


def _find_obstacle(event: AuditEvent, task: Task | None, *, is_undone: bool) -> Problem | None:
    """Return why the event cannot be undone. `task`: its task; None: deleted, or not the reader's to see."""
    if event.action not in UNDOABLE:
        return _refuse(event)
    if task is None:
        return Problem("", "UNDO_TASK_GONE", {"task": event.target})
    if is_undone:
        return Problem("", "UNDO_DONE", {})
    params = {"task": task.pk, "status": task.state}
    if event.action == "task.stop":
        if task.state not in FINAL_STATES:
            return Problem("", "UNDO_STILL_STOPPING", params)
        return None if find_newest_checkpoint(task) else Problem("", "UNDO_NO_CHECKPOINT", {"task": task.pk})
    if task.state in FINAL_STATES:
        return Problem("", "UNDO_TASK_ENDED", params)
    if (event.action == "task.pause") is (task.paused_at is None) and event.action != "task.create":
        return Problem("", "UNDO_CHANGED_SINCE", {"task": task.pk})
    return None


def _refuse(event: AuditEvent) -> Problem:
    return Problem("", "UNDO_UNKNOWN", {"action": event.action})


def _make_error(obstacle: Problem) -> ApiError:
    return ApiError(409, obstacle.code, **obstacle.params)
