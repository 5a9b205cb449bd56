"""A row's `due_at` is schedule and claim in one; `claimed_at` says since when a pass has it. Rows that live (tasks,
environments) have both columns."""

import random
from datetime import datetime, timedelta
from typing import Any

from django.db import OperationalError, connection
from django.db.models import QuerySet

from apps.common.clock import now

TRIES = 5
DEADLOCK = "40P01"
"""As PostgreSQL names it."""


def claim(rows: QuerySet[Any], span: timedelta) -> datetime:
    """Takes those of `rows` that are due by moving `due_at` to a moment that is this pass's own: who has it there has
    the row, until then."""
    moment = now()
    mine = moment + span + timedelta(microseconds=random.randrange(1_000_000))
    update(rows.filter(due_at__lte=moment), due_at=mine, claimed_at=moment)
    return mine


def let_go(rows: QuerySet[Any], claim: datetime, wait: timedelta | None) -> None:
    """Those that a hint has pulled forward meanwhile stay due, and are claimed anew at once. None: not due any more."""
    update(rows.filter(due_at=claim), due_at=None if wait is None else now() + wait, claimed_at=None)


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
