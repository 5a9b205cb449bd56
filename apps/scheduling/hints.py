"""Messages that make things happen sooner; none of them is needed: the queue is looked at every few seconds."""

import logging

from celery import current_app
from django.db import transaction
from kombu.exceptions import OperationalError

log = logging.getLogger(__name__)


def changed() -> None:
    """What a project may use, or what is set aside for whom, is different once the transaction is committed."""
    transaction.on_commit(_send)


def _send() -> None:
    try:
        current_app.send_task("training.sweep", ignore_result=True, retry=False)
    except (OperationalError, OSError) as error:
        log.warning("broker away, what changed waits for the sweep: %s", error)
