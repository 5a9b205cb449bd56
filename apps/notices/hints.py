"""Messages that make things happen sooner. None of them is needed: the sweep finds what is due by itself."""

from django.db import transaction

from apps.common.wakeups import enqueue_task


def enqueue_sweep() -> None:
    """Start a sweep after the current transaction is committed."""
    transaction.on_commit(lambda: enqueue_task("notices.sweep"))
