"""Pieces of work, each a row that is done by one process: `due_at` is schedule and claim in one.

A row is taken by compare-and-set on `due_at`, which moves to when the claim lapses. It is renewed while the work goes
on, and what comes of the work is written only while it stands there: a process that dies leaves the row to the next
sweep, and one that was taken for dead writes nothing any more.
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

RENEWALS = 3
"""How often a claim is renewed within its span."""


class LostError(Exception):
    """Somebody else has the row now."""


class Claim:
    """This process's hold on a row, by which nobody else has it. It is over once the work has said when the row is due
    again."""

    def __init__(self, row: Any, span: timedelta) -> None:
        self._row, self._span = row, span
        self._lock = threading.RLock()
        self._over = False

    def write(self, **values: Any) -> bool:
        """Whether the row was still this process's; nothing is written where it was not."""
        with self._lock:
            written = self._write(**values)
            self._over = self._over or "due_at" in values
            return written

    @contextmanager
    def fenced(self, **values: Any) -> Iterator[None]:
        """A transaction that begins with `write`. Raises LostError, and writes nothing, where the row is not this
        process's any more."""
        with self._lock:
            before = self._row.due_at, self._over
            try:
                with transaction.atomic():
                    if not (self.write(**values) if values else self.renew()):
                        raise LostError(self._row.pk)
                    yield
            except BaseException:
                self._row.due_at, self._over = before  # as the database has it again
                raise

    def renew(self, **values: Any) -> bool:
        """Begins its span anew, and sets `values` along. False: somebody else was quicker, or it is over."""
        with self._lock:
            return self._write(due_at=now() + self._span, **values)

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Renews it while the work goes on."""
        with renewing(self.renew, self._span.total_seconds() / RENEWALS, f"{type(self._row).__name__} {self._row.pk}"):
            yield

    def _write(self, **values: Any) -> bool:
        if self._over:
            return False
        mine = type(self._row)._default_manager.filter(pk=self._row.pk, due_at=self._row.due_at)
        if not mine.update(**values):
            return False
        self._row.due_at = values.get("due_at", self._row.due_at)
        return True


def claim_row(row: Any, span: timedelta, **values: Any) -> Claim | None:
    """The row, as it was read, is this process's for `span`; `values` are set along. None: another was quicker."""
    claim = Claim(row, span)
    return claim if row.due_at is not None and claim.renew(**values) else None


def carry_out_one(due: QuerySet[Any], most: int, carry_out: Callable[[Any], bool], channel: str) -> int:
    """Carries out that of the rows that is due longest; where another process has it, the next, of `most` at most. If
    there are more, other threads that listen on `channel` do the same. Returns how many it was."""
    rows = list(due.filter(due_at__lte=now()).order_by("due_at")[:most])
    if len(rows) > 1:
        wakeups.tell(channel, {})
    return next((1 for row in rows if carry_out(row)), 0)


@contextmanager
def renewing(renew: Callable[[], bool], seconds: float, what: str) -> Iterator[None]:
    """Calls `renew` from a thread of its own, every so many seconds until the block ends or it returns False: no long
    read or fsync of the work lets a claim lapse."""
    done = threading.Event()

    def run() -> None:
        try:
            while not done.wait(seconds):
                if not renew():
                    return
        except Exception:  # the work goes on, and writes only what it still may
            log.exception("the claim on %s cannot be renewed", what)
        finally:
            connection.close()

    thread = threading.Thread(target=run, name=f"claim on {what}"[:60], daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
