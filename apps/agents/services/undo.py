"""Undoes what was done, as far as it can be undone."""

from apps.accounts import trail
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

MAX_KEY_DIGITS = 18

UNDOABLE = {
    "task.create": "stop",
    "task.stop": "retry",
    "task.pause": "resume",
    "task.resume": "pause",
}
"""What undoes an action."""


def find_event(user: User, key: str) -> AuditEvent:
    """Return the event, if the user did it, maintains its project, or it was done with a token whose purse the user may
    read. Raises ApiError 404."""
    known = key.isascii() and key.isdecimal() and len(key) <= MAX_KEY_DIGITS
    event = AuditEvent.objects.filter(pk=int(key)).first() if known else None
    if event is None or not (
        (event.actor_id == user.pk and user.token_rights is None)
        or (event.token and selectors.filter_purses(user).filter(pk=event.token).exists())
        or trail.list_events(user).filter(pk=event.pk).exists()
    ):
        raise ApiError(404, "NOT_FOUND")
    return event


def undo_event(user: User, key: str) -> Task:
    """Undo an event with the user's own rights and return its task: stop one that was created, continue one that was
    stopped from its newest checkpoint, resume or pause. Raises ApiError 409 with the reason where that is not
    possible."""
    event = find_event(user, key)
    if event.action not in UNDOABLE:
        raise ApiError(409, "UNDO_UNKNOWN", action=event.action)
    task = find_task(user, event.target)
    match event.action:
        case "task.create":
            if task.state in FINAL_STATES:
                raise ApiError(409, "UNDO_TASK_ENDED", task=task.pk, status=task.state)
            return stop_task(user, task.pk)
        case "task.stop":
            if task.state not in FINAL_STATES:
                raise ApiError(409, "UNDO_STILL_STOPPING", task=task.pk, status=task.state)
            if not find_newest_checkpoint(task):
                raise ApiError(409, "UNDO_NO_CHECKPOINT", task=task.pk)
            return retry_task(user, task.pk)
        case "task.pause":
            return resume_task(user, task.pk)
    return pause_task(user, task.pk)
