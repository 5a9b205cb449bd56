"""Claims of rows that live on (tasks, environments) by one pass at a time.

`due_at` says when a row is to be handled next; wake-ups move it to now. `claimed_at` says which pass has the row: it is
set by compare-and-set to the moment at which the pass began, and the pass writes only while it is unchanged. A wake-up
never takes a row away from its pass: the row is due again as soon as the pass releases it. If a pass dies, its claim
lapses after its span; while it lives, the claim is renewed (`PassClaim.kept`).
"""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any

from django.db import OperationalError, connection
from django.db.models import Q, QuerySet

from apps.common import clock_jumps
from apps.common.claims import RENEWALS_PER_SPAN, renew_periodically
from apps.common.clock import now

MAX_TRIES = 5
DEADLOCK_SQLSTATE = "40P01"
"""PostgreSQL's SQLSTATE of a deadlock."""


class PassClaim:
    """A pass's claim of those of `rows` that were due and free when it was made: their `claimed_at` is `at`. `until`:
    their `due_at`, unless a wake-up has moved it. `taken`: how many they were."""

    def __init__(self, rows: QuerySet[Any], span: timedelta) -> None:
        clock_jumps.handle_jump()
        self.rows, self.span = rows, span
        self.at = _make_unique_moment(now())
        self.until = self.at + span
        self.taken = update_rows(filter_due(rows, span), due_at=self.until, claimed_at=self.at)

    @property
    def held_rows(self) -> QuerySet[Any]:
        """Return the rows that the pass still has."""
        return self.rows.filter(claimed_at=self.at)

    def renew(self) -> bool:
        """Extend the claim by its span. Returns False if no row of it is left."""
        at = _make_unique_moment(now())
        if not update_rows(self.held_rows, claimed_at=at):
            return False
        self.at = at
        return True

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Renew the claim from a thread until the block ends, however long one step takes."""
        with renew_periodically(
            self.renew, self.span.total_seconds() / RENEWALS_PER_SPAN, f"claim {self.at:%H:%M:%S.%f}"
        ):
            yield

    def release(self, rows: QuerySet[Any], count: int, due_at: datetime | None) -> int:
        """Release these rows, at most `count`: they are due again at `due_at` (None: not again). Returns how many a
        wake-up has moved meanwhile; these are due at once."""
        mine = rows.filter(claimed_at=self.at)
        if update_rows(mine.filter(due_at=self.until), due_at=due_at, claimed_at=None) == count:
            return 0
        return update_rows(mine, claimed_at=None)


def _make_unique_moment(moment: datetime) -> datetime:
    """Return a moment of the last second that no other pass has: several processes are woken by the same message."""
    return moment - timedelta(microseconds=random.randrange(1_000_000))


def filter_due(rows: QuerySet[Any], span: timedelta) -> QuerySet[Any]:
    """Return the rows that are due and that no pass has."""
    moment = now()
    return rows.filter(Q(claimed_at=None) | Q(claimed_at__lte=moment - span), due_at__lte=moment)


def update_rows(rows: QuerySet[Any], **values: Any) -> int:
    """Update the rows and return their number; repeats the update after a deadlock.

    Another process may update some of the same rows. PostgreSQL locks rows in the order in which it finds them, which
    depends on the number of keys, so two updates may wait for each other; one of them fails after a second. (Locking
    the rows in key order first took twice the time on every update.)
    """
    for _ in range(MAX_TRIES - 1):
        try:
            return rows.update(**values)
        except OperationalError as error:
            if getattr(error.__cause__, "sqlstate", "") != DEADLOCK_SQLSTATE or connection.in_atomic_block:
                raise
    return rows.update(**values)
