"""Messages that make things happen sooner. None of them is needed: the sweeps find by themselves what is due."""

import logging

from celery import current_app
from kombu.exceptions import OperationalError

log = logging.getLogger(__name__)


def send(name: str, *args: str) -> None:
    """At once, to whichever worker takes the Celery task `name`."""
    try:
        current_app.send_task(name, args=args, ignore_result=True, retry=False)
    except (OperationalError, OSError) as error:
        log.warning("broker away, %s waits for the sweep: %s", " ".join((name, *args)), error)
