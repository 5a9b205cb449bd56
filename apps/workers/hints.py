"""Messages that make things happen sooner. None of them is needed."""

from collections.abc import Iterable

from django.db import transaction

from apps.common import pubsub
from apps.training.public import enqueue_tasks

CHANNEL = "workers"


def publish_desired_change() -> None:
    """Tell the web processes, after the transaction is committed, that the desired state of a worker has changed."""
    transaction.on_commit(lambda: pubsub.publish_message(CHANNEL, {}))


def wake_tasks(tasks: Iterable[str]) -> None:
    """Wake the tasks whose ranks have new reports."""
    enqueue_tasks(tasks)
