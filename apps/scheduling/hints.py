"""Messages that make things happen sooner. None of them is needed: the queue is processed every few seconds."""

from django.db import transaction

from apps.common import wakeups


def wake_queue() -> None:
    """Wake the scheduler after the current transaction is committed: limits or reservations have changed."""
    transaction.on_commit(lambda: wakeups.enqueue_task("training.sweep"))
