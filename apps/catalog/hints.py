"""Messages that start the preparation of a version early. The sweep finds every due version without them."""

from django.db import transaction

from apps.common import wakeups


def enqueue_preparation(version_id: str) -> None:
    """Start the preparation of a version, after the current transaction is committed."""
    transaction.on_commit(lambda: wakeups.enqueue_task("catalog.prepare", version_id))
