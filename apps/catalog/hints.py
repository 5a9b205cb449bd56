"""Messages that make preparation begin sooner; the sweep finds every due version without them."""

from django.db import transaction

from apps.common import wakeups


def prepare(version_id: str) -> None:
    """Once the current transaction is committed."""
    transaction.on_commit(lambda: wakeups.send("catalog.prepare", version_id))
