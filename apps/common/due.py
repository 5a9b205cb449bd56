"""A row's `due_at` is schedule and claim in one; `claimed_at` says since when a pass has it. Rows that live (tasks,
environments) have both columns."""

import random
from datetime import datetime, timedelta
from typing import Any

from django.db.models import QuerySet

from apps.common.clock import now


def claim(rows: QuerySet[Any], span: timedelta) -> datetime:
    """Takes those of `rows` that are due by moving `due_at` to a moment that is this pass's own: who has it there has
    the row, until then."""
    moment = now()
    mine = moment + span + timedelta(microseconds=random.randrange(1_000_000))
    rows.filter(due_at__lte=moment).update(due_at=mine, claimed_at=moment)
    return mine


def let_go(rows: QuerySet[Any], claim: datetime, wait: timedelta | None) -> None:
    """Those that a hint has pulled forward meanwhile stay due, and are claimed anew at once. None: not due any more."""
    rows.filter(due_at=claim).update(due_at=None if wait is None else now() + wait, claimed_at=None)
