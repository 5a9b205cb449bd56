"""Messages that make things happen sooner. None of them is needed."""

from collections.abc import Iterable

from django.db import transaction

from apps.common import pubsub
from apps.training.core import wakeups

CHANNEL = "workers"


def desired_changed() -> None:
    """Tell the web processes, after the transaction is committed, that the desired state of a worker has changed."""
    transaction.on_commit(lambda: pubsub.publish(CHANNEL, {}))


def reported(tasks: Iterable[str]) -> None:
    """Wake the tasks whose ranks have new reports."""
    wakeups.poke_all(tasks)
