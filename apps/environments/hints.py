"""Messages that make things happen sooner. None of them is needed: the sweep finds every due environment by itself."""

from django.db import transaction

from apps.common.clock import now
from apps.common.wakeups import tell
from apps.environments.models import Hosted

CHANNEL = "environments"
"""On which the workers' lane is told that something is due."""


def poke(environment_id: str) -> None:
    """Have it looked at as soon as the current transaction is committed."""
    Hosted.objects.filter(pk=environment_id).update(due_at=now())
    again()


def again() -> None:
    """Have what is due looked at, once the current transaction is committed."""
    transaction.on_commit(lambda: tell(CHANNEL, {}))
