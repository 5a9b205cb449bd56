"""Claims of rows that one process works on: `due_at` is schedule and claim in one.

A process claims a row by compare-and-set on `due_at`, which moves to when the claim lapses. The claim is renewed during
the work, and the result is written only while the claim is held: if a process dies, a later sweep takes the row, and a
process that was taken for dead can write nothing more.
"""

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

from django.db import connection, transaction
from django.db.models import QuerySet

from apps.common import wakeups
from apps.common.clock import now

log = logging.getLogger(__name__)

RENEWALS_PER_SPAN = 3
"""How often a claim is renewed within its span."""


class ClaimLostError(Exception):
    """Another process has the row now."""


class RowClaim:
    """A process's claim of a row. It ends when the work writes when the row is due again."""

    def __init__(self, row: Any, span: timedelta) -> None:
        self._row, self._span = row, span
        self._lock = threading.RLock()
        self._over = False

    def write(self, **values: Any) -> bool:
        """Update the row. Returns False, and writes nothing, if the claim is lost."""
        with self._lock:
            written = self._write(**values)
            self._over = self._over or "due_at" in values
            return written

    @contextmanager
    def fenced(self, **values: Any) -> Iterator[None]:
        """Open a transaction that begins with `write`. Raises ClaimLostError, and writes nothing, if the claim is
        lost."""
        with self._lock:
            before = self._row.due_at, self._over
            try:
                with transaction.atomic():
                    if not (self.write(**values) if values else self.renew()):
                        raise ClaimLostError(self._row.pk)
                    yield
            except BaseException:
                self._row.due_at, self._over = before  # as the database has it again
                raise

    def renew(self, **values: Any) -> bool:
        """Extend the claim by its span, and set `values` too. Returns False if the claim is lost or has ended."""
        with self._lock:
            return self._write(due_at=now() + self._span, **values)

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Renew the claim from a thread until the block ends."""
        with renew_periodically(
            self.renew, self._span.total_seconds() / RENEWALS_PER_SPAN, f"{type(self._row).__name__} {self._row.pk}"
        ):
            yield

    def _write(self, **values: Any) -> bool:
        if self._over:
            return False
        mine = type(self._row)._default_manager.filter(pk=self._row.pk, due_at=self._row.due_at)
        if not mine.update(**values):
            return False
        self._row.due_at = values.get("due_at", self._row.due_at)
        return True


def claim_row(row: Any, span: timedelta, **values: Any) -> RowClaim | None:
    """Return a claim of the row, which was read before, for `span`; sets `values` too. Returns None if another process
    was faster."""
    claim = RowClaim(row, span)
    return claim if row.due_at is not None and claim.renew(**values) else None


def run_oldest_due(due: QuerySet[Any], max_tries: int, run: Callable[[Any], bool], channel: str) -> int:
    """Run the row that has been due longest; if another process has it, the next one, up to `max_tries`. If there are
    more, wake the other threads that listen on `channel`. Returns how many rows were run (0 or 1)."""
    rows = list(due.filter(due_at__lte=now()).order_by("due_at")[:max_tries])
    if len(rows) > 1:
        wakeups.publish_soon(channel, {})
    return next((1 for row in rows if run(row)), 0)


@contextmanager
def renew_periodically(renew: Callable[[], bool], seconds: float, label: str) -> Iterator[None]:
    """Call `renew` from a thread every `seconds` until the block ends or it returns False, so that no long read or
    fsync lets a claim lapse."""
    done = threading.Event()

    def run() -> None:
        try:
            while not done.wait(seconds):
                if not renew():
                    return
        except Exception:  # the work goes on, and writes only what it still may
            log.exception("the claim on %s cannot be renewed", label)
        finally:
            connection.close()

    thread = threading.Thread(target=run, name=f"claim on {label}"[:60], daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
