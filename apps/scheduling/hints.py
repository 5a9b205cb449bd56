"""Messages that make things happen sooner; none of them is needed: the queue is looked at every few seconds."""

from django.db import transaction

from apps.common import wakeups


def changed() -> None:
    """What a project may use, or what is set aside for whom, is different once the transaction is committed."""
    transaction.on_commit(lambda: wakeups.send("training.sweep"))
