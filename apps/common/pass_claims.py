"""Rows that live (tasks, environments), each looked at by one pass at a time.

`due_at` says when a row is to be looked at next, and hints move it to now. `claimed_at` says which pass has the row: it
is set by compare-and-set to the moment at which the pass began, and the pass writes only while that stands there. A
hint never takes a row away from its pass: the row is due again as soon as the pass lets go of it. The claim of a pass
that died lapses after its span; while a pass lives, it is renewed (`Claim.kept`).
"""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any

from django.db import OperationalError, connection
from django.db.models import Q, QuerySet

from apps.common import clock_jumps
from apps.common.claims import RENEWALS, renewing
from apps.common.clock import now

TRIES = 5
DEADLOCK = "40P01"
"""As PostgreSQL names it."""


class Claim:
    """One pass's hold on those of `rows` that were due and free when it was made: their `claimed_at` is `at`. `until`:
    what their `due_at` is, unless a hint has moved it. `taken`: how many they were."""

    def __init__(self, rows: QuerySet[Any], span: timedelta) -> None:
        clock_jumps.settle()
        self.rows, self.span = rows, span
        self.at = _own(now())
        self.until = self.at + span
        self.taken = update(waiting(rows, span), due_at=self.until, claimed_at=self.at)

    @property
    def held(self) -> QuerySet[Any]:
        """Those of its rows that it still has."""
        return self.rows.filter(claimed_at=self.at)

    def renew(self) -> bool:
        """Begins its span anew. False: nothing of it is left."""
        at = _own(now())
        if not update(self.held, claimed_at=at):
            return False
        self.at = at
        return True

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Renews it while the work goes on, however long one step of it takes."""
        with renewing(self.renew, self.span.total_seconds() / RENEWALS, f"claim {self.at:%H:%M:%S.%f}"):
            yield

    def let_go(self, rows: QuerySet[Any], count: int, due_at: datetime | None) -> int:
        """Of its rows these, `count` at most: they are looked at again at `due_at` (None: not any more). Returns how
        many a hint has moved meanwhile; they are due at once."""
        mine = rows.filter(claimed_at=self.at)
        if update(mine.filter(due_at=self.until), due_at=due_at, claimed_at=None) == count:
            return 0
        return update(mine, claimed_at=None)


def _own(moment: datetime) -> datetime:
    """A moment that no other pass has: several processes are woken by the same message. Up to a second ago."""
    return moment - timedelta(microseconds=random.randrange(1_000_000))


def waiting(rows: QuerySet[Any], span: timedelta) -> QuerySet[Any]:
    """Those of `rows` that are due and that no pass has."""
    moment = now()
    return rows.filter(Q(claimed_at=None) | Q(claimed_at__lte=moment - span), due_at__lte=moment)


def update(rows: QuerySet[Any], **values: Any) -> int:
    """How many there were. Others may update some of the same: PostgreSQL takes rows in the order in which it comes
    upon them, which differs with how many are asked for, so two may wait for each other. One of them is refused after
    a second, and asks again here. (To lock rows by their keys first took twice the time, each time.)"""
    for _ in range(TRIES - 1):
        try:
            return rows.update(**values)
        except OperationalError as error:
            if getattr(error.__cause__, "sqlstate", "") != DEADLOCK or connection.in_atomic_block:
                raise
    return rows.update(**values)
