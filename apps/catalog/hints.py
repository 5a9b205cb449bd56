"""Messages that make preparation begin sooner; the sweep finds every due version without them."""

import logging

from celery import current_app
from django.db import transaction
from kombu.exceptions import OperationalError

log = logging.getLogger(__name__)


def prepare(version_id: str) -> None:
    """Once the current transaction is committed."""
    transaction.on_commit(lambda: _send(version_id))


def _send(version_id: str) -> None:
    try:
        current_app.send_task("catalog.prepare", args=(version_id,), ignore_result=True, retry=False)
    except (OperationalError, OSError) as error:
        log.warning("broker away, %s waits for the sweep: %s", version_id, error)
