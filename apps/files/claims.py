"""A row that is due, taken by one process: compare-and-set on `due_at`, pushed ahead while the work goes on, so that a
process that dies leaves the row to the next sweep."""

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

from django.db import connection

from apps.common.clock import now

log = logging.getLogger(__name__)

CLAIM = timedelta(seconds=30)
BEAT_SECONDS = 8.0


def take(row: Any) -> bool:
    """Whether it is ours now."""
    mine = type(row)._default_manager.filter(pk=row.pk, due_at=row.due_at)
    row.due_at = now() + CLAIM
    return bool(mine.update(due_at=row.due_at))


@contextmanager
def kept(row: Any) -> Iterator[None]:
    """Keeps the claim alive from a thread of its own, as long as the work takes."""
    done = threading.Event()
    rows = type(row)._default_manager.filter(pk=row.pk, due_at__isnull=False)

    def beat() -> None:
        try:
            while not done.wait(BEAT_SECONDS):
                rows.update(due_at=now() + CLAIM)
        except Exception:  # the work goes on; at worst it is done twice, with the same outcome
            log.exception("cannot keep the claim on %s", row)
        finally:
            connection.close()

    thread = threading.Thread(target=beat, name=f"claim-{row.pk}", daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
