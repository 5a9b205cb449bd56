"""When the clock was set, or the machine was suspended, while the platform ran: what the wall clock left out is charged
to nobody, and ends nothing.

The monotonic clock is never set and stands still while Linux is suspended (clock_gettime(2), CLOCK_MONOTONIC). So a
wall clock that moves on by more or less than it has jumped, whatever the reason. Each pass looks before it asks what is
due (`settle`). The first that sees a jump stores it, and moves what is planned by as much, in one transaction:

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

SHORTEST = timedelta(seconds=30)
"""What differs by less is a clock that is being corrected, or a process that was not given a processor between two
readings."""
LATELY = timedelta(minutes=10)
SAME_WITHIN = timedelta(minutes=2)
"""Processes of a platform see the same jump at their next pass."""
PLANNED = ("due_at", "claimed_at", "deadline_at", "keep_until", "rests_until", "kept_until", "active_at", "warned_at")
"""Columns, of whichever table, that something is measured by which follows from time that passes. What people set by
the calendar (reservations, expiry dates) is none of them."""


class Watching:
    """Of one process. `wall`, `steady`: its clocks."""

    def __init__(self, wall: Callable[[], datetime] = clock.now, steady: Callable[[], float] = time.monotonic) -> None:
        self._wall, self._steady = wall, steady
        self._before = steady(), wall()
        self._forward: list[tuple[float, timedelta]] = []

    def look(self) -> tuple[datetime, timedelta] | None:
        """Returns the moment after a jump, by the clock as it is now, and how far it went (below zero: back). None:
        there was none since the look before."""
        (steady_before, wall_before), (steady, wall) = self._before, (self._steady(), self._wall())
        self._before = steady, wall
        jumped = (wall - wall_before) - timedelta(seconds=steady - steady_before)
        if abs(jumped) < SHORTEST:
            return None
        if jumped > timedelta():
            self._forward.append((steady, jumped))
        return wall, jumped

    def forget(self, by: timedelta) -> None:
        """The jump that was seen last, so that the next look sees it again."""
        steady, wall = self._before
        self._before = steady, wall - by
        if by > timedelta():
            self._forward.pop()

    def lately(self) -> timedelta:
        """How far the clock went forward within the last `LATELY`."""
        self._forward = [one for one in self._forward if self._steady() - one[0] < LATELY.total_seconds()]
        return sum((jumped for _, jumped in self._forward), timedelta())


_watching = Watching()


def settle() -> None:
    """Stores a jump of the clock since this process looked last, and moves what is planned with it. Raises what the
    database raises, and does it again at the next look."""
    if jump := _watching.look():
        try:
            store(*jump)
        except Exception:
            _watching.forget(jump[1])
            raise


def lately() -> timedelta:
    """By how much moments that runners told before a jump may seem too old: until they tell newer ones, nobody is to be
    judged by how long something lasts."""
    return _watching.lately()


def store(at: datetime, by: timedelta) -> bool:
    """Whether nobody else has stored this jump."""
    with transaction.atomic():
        Written.objects.get_or_create(pk=1, defaults={"at": at})
        Written.objects.select_for_update().get(pk=1)  # one after the other
        near = ClockJump.objects.filter(at__gte=at - SAME_WITHIN, at__lte=at + SAME_WITHIN)
        if any(abs(one.seconds - by.total_seconds()) < SHORTEST.total_seconds() for one in near):
            return False
        ClockJump.objects.create(at=at, seconds=by.total_seconds())
        for model, names in _planned():
            for name in names:
                model._base_manager.filter(**{f"{name}__isnull": False}).update(**{name: F(name) + by})
    log.warning("the clock jumped by %s at %s: deadlines are moved with it, and nobody is charged for it", by, at)
    return True


def _planned() -> Iterator[tuple[type[models.Model], list[str]]]:
    for model in apps.get_models():
        fields = {field.name for field in model._meta.concrete_fields if isinstance(field, models.DateTimeField)}
        if names := [name for name in PLANNED if name in fields]:
            yield model, names


Gaps = list[tuple[datetime, datetime]]


def gaps(since: datetime) -> Gaps:
    """Stretches after `since` that the clock left out, in order."""
    found = ClockJump.objects.filter(at__gt=since, seconds__gt=0).order_by("at")
    return [(one.at - timedelta(seconds=one.seconds), one.at) for one in found]


def pieces(
    since: datetime, until: datetime, left_out: Iterable[tuple[datetime, datetime]]
) -> Iterator[tuple[datetime, datetime]]:
    """Returns the stretch without what was left out."""
    for begins, ends in left_out:
        if since < min(begins, until):
            yield since, min(begins, until)
        since = max(since, ends)
    if since < until:
        yield since, until


def passed(since: datetime, until: datetime, left_out: Iterable[tuple[datetime, datetime]]) -> timedelta:
    """How long it was without what was left out; never below zero."""
    return sum((end - begin for begin, end in pieces(since, until, left_out)), timedelta())
