"""Tokens with which the ranks of one attempt log to the platform: they write to their task and read its project.

A token is signed and stored nowhere. It is valid while its attempt is the task's newest and the task has not ended.
"""

from django.core import signing

from apps.training.models import Task
from apps.training.states import ACTIVE_STATES

PREFIX = "fermi-run-"
MAX_LENGTH = 300
_SALT = "fermi.run"


def make_run_token(task_id: str, attempt: int) -> str:
    """Return the token of an attempt."""
    return PREFIX + signing.Signer(salt=_SALT).sign(f"{task_id}.{attempt}")


def find_token_task(token: str) -> Task | None:
    """Return the task to which a token may write now, or None."""
    if not token.startswith(PREFIX) or len(token) > MAX_LENGTH:
        return None
    try:
        task_id, _, attempt = signing.Signer(salt=_SALT).unsign(token.removeprefix(PREFIX)).rpartition(".")
    except signing.BadSignature:
        return None
    rows = Task.objects.select_related("project", "owner").filter(pk=task_id, attempt=int(attempt))
    return rows.filter(state__in=ACTIVE_STATES).first()
