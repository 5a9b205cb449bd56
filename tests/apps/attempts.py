"""Attempts that never ran: their rows, and what their ranks would have printed."""

from pathlib import Path

from django.conf import settings

from apps.accounts.access import UserRights
from apps.accounts.models import User
from apps.common.clock import now
from apps.training.models import Attempt, Task
from apps.training.presenters import selectors
from apps.training.presenters.selectors import StreamState


def begin_attempt(task: Task, number: int) -> None:
    task.attempts.filter(number=number - 1).update(ended_at=now())
    Attempt.objects.create(task=task, number=number, master_port=29500, created_at=now())
    Task.objects.filter(pk=task.pk).update(attempt=number)
    task.refresh_from_db()


def write(task: Task, text: str | bytes, *, attempt: int = 1, rank: int = 0) -> None:
    path = Path(settings.DATA_DIR, "logs", task.pk, str(attempt), f"{rank}.log")
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab") as file:
        file.write(text.encode() if isinstance(text, str) else text)


def pulse_of(user: User, task: Task) -> StreamState | None:
    """As the task's live stream gets it."""
    return selectors.read_stream_states(UserRights(user.pk, user.is_superuser), [task.pk], "en").get(task.pk)
