"""Messages that make things happen sooner; none of them is needed."""

from collections.abc import Iterable

from django.db import transaction

from apps.common import pubsub
from apps.training.core import wakeups

CHANNEL = "workers"


def desired_changed() -> None:
    """Tells the web processes, once the transaction is committed, that some worker is to do something else."""
    transaction.on_commit(lambda: pubsub.publish(CHANNEL, {}))


def reported(tasks: Iterable[str]) -> None:
    """Has the tasks looked at of whose ranks something new is known."""
    wakeups.poke_all(tasks)
