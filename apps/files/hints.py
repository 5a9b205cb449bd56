"""Messages that make things happen sooner. None of them is needed: the sweep finds what is due."""

from django.db import transaction

from apps.common import wakeups


def enqueue_sweep() -> None:
    transaction.on_commit(lambda: wakeups.enqueue_task("files.sweep"))
