"""Detects that the clock was set, or the machine suspended, while the platform ran: that time is charged to no task and
ends nothing.

The monotonic clock is never set and stands still while Linux is suspended (clock_gettime(2), CLOCK_MONOTONIC). So a
wall clock that advances by more or less than the monotonic one has jumped, whatever the reason. Each pass checks this
before it reads what is due (`handle_jump`). The first process that sees a jump stores it and moves what is scheduled by
as much, in one transaction:

    12:00:10, deadline 12:10:00   ─ the clock is set ─▶   14:00:10, deadline 14:10:00

Durations that are charged leave the jumps out (`passed`, `pieces`). One that goes back makes them shorter than they
were.
"""

import logging
import time
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime, timedelta

from django.apps import apps
from django.db import models, transaction
from django.db.models import F

from apps.common import clock
from apps.common.models import ClockJump, Written

log = logging.getLogger(__name__)

MIN_JUMP = timedelta(seconds=30)
"""A smaller difference is a clock that is being corrected, or a process that got no CPU between two readings."""
RECENT_SPAN = timedelta(minutes=10)
SAME_JUMP_WITHIN = timedelta(minutes=2)
"""Processes of a platform see the same jump at their next pass."""
SHIFTED_COLUMNS = (
    "due_at",
    "claimed_at",
    "deadline_at",
    "keep_until",
    "rests_until",
    "kept_until",
    "active_at",
    "warned_at",
)
"""Columns of all tables with a moment that is computed from elapsed time. Moments that users set by the calendar
(reservations, expiry dates) are not among them."""


class ClockWatcher:
    """Detector of clock jumps in one process. `wall`, `steady`: its clocks."""

    def __init__(self, wall: Callable[[], datetime] = clock.now, steady: Callable[[], float] = time.monotonic) -> None:
        self._wall, self._steady = wall, steady
        self._before = steady(), wall()
        self._forward: list[tuple[float, timedelta]] = []

    def find_jump(self) -> tuple[datetime, timedelta] | None:
        """Return the moment after a jump, by the present clock, and its size (negative: back); None if there was none
        since the last call."""
        (steady_before, wall_before), (steady, wall) = self._before, (self._steady(), self._wall())
        self._before = steady, wall
        jumped = (wall - wall_before) - timedelta(seconds=steady - steady_before)
        if abs(jumped) < MIN_JUMP:
            return None
        if jumped > timedelta():
            self._forward.append((steady, jumped))
        return wall, jumped

    def undo_jump(self, by: timedelta) -> None:
        """Undo the last jump that was seen, so that the next call sees it again."""
        steady, wall = self._before
        self._before = steady, wall - by
        if by > timedelta():
            self._forward.pop()

    def lately(self) -> timedelta:
        """Return how far the clock jumped forward within RECENT_SPAN."""
        self._forward = [one for one in self._forward if self._steady() - one[0] < RECENT_SPAN.total_seconds()]
        return sum((jumped for _, jumped in self._forward), timedelta())


_watcher = ClockWatcher()


def handle_jump() -> None:
    """Store a jump of the clock since the last call in this process, and move what is scheduled by as much. If the
    database fails, its error is raised and the next call tries again."""
    if jump := _watcher.find_jump():
        try:
            store_jump(*jump)
        except Exception:
            _watcher.undo_jump(jump[1])
            raise


def get_recent_jump() -> timedelta:
    """Return by how much moments that runners reported before a jump may seem too old. Until they report newer ones, no
    timeout applies to them."""
    return _watcher.lately()


def store_jump(at: datetime, by: timedelta) -> bool:
    """Store a jump. Returns False if another process has stored it."""
    with transaction.atomic():
        Written.objects.get_or_create(pk=1, defaults={"at": at})
        Written.objects.select_for_update().get(pk=1)  # one after the other
        near = ClockJump.objects.filter(at__gte=at - SAME_JUMP_WITHIN, at__lte=at + SAME_JUMP_WITHIN)
        if any(abs(one.seconds - by.total_seconds()) < MIN_JUMP.total_seconds() for one in near):
            return False
        ClockJump.objects.create(at=at, seconds=by.total_seconds())
        for model, names in _list_shifted_columns():
            for name in names:
                model._base_manager.filter(**{f"{name}__isnull": False}).update(**{name: F(name) + by})
    log.warning("the clock jumped by %s at %s: deadlines are moved with it, and nobody is charged for it", by, at)
    return True


def _list_shifted_columns() -> Iterator[tuple[type[models.Model], list[str]]]:
    for model in apps.get_models():
        fields = {field.name for field in model._meta.concrete_fields if isinstance(field, models.DateTimeField)}
        if names := [name for name in SHIFTED_COLUMNS if name in fields]:
            yield model, names


Gaps = list[tuple[datetime, datetime]]


def list_gaps(since: datetime) -> Gaps:
    """Return the periods after `since` that the clock skipped, in order."""
    found = ClockJump.objects.filter(at__gt=since, seconds__gt=0).order_by("at")
    return [(one.at - timedelta(seconds=one.seconds), one.at) for one in found]


def subtract_gaps(
    since: datetime, until: datetime, left_out: Iterable[tuple[datetime, datetime]]
) -> Iterator[tuple[datetime, datetime]]:
    """Yield the parts of the period between `since` and `until` that are not in `left_out`."""
    for begins, ends in left_out:
        if since < min(begins, until):
            yield since, min(begins, until)
        since = max(since, ends)
    if since < until:
        yield since, until


def measure_elapsed(since: datetime, until: datetime, left_out: Iterable[tuple[datetime, datetime]]) -> timedelta:
    """Return how long the period was without what is in `left_out`; never negative."""
    return sum((end - begin for begin, end in subtract_gaps(since, until, left_out)), timedelta())
