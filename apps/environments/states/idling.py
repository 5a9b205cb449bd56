"""When an environment that nobody uses stops by itself. Pure."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from apps.environments.states.limits import WARNING


class Idle(StrEnum):
    USED = "used"
    WARN = "warn"  # its owner is to hear that it will stop
    STOP = "stop"


@dataclass(frozen=True, slots=True)
class Use:
    """active   the last sign of work: of a kernel, a connection, a GPU, a task that holds it; at least since it runs
    now        somebody is at it at this moment
    warned     when its owner was told; of a warning before the last sign of work nothing is left
    """

    moment: datetime
    active: datetime
    now: bool = False
    minutes: int | None = None
    keep_until: datetime | None = None
    warned: datetime | None = None


def stops_at(use: Use) -> datetime | None:
    """None: never by itself. Whoever was told late is given the time all the same."""
    if not use.minutes:
        return None
    after = timedelta(minutes=use.minutes)
    stops = max(use.active + after, use.keep_until or use.active)
    return max(stops, use.warned + ahead(after)) if use.warned and use.warned >= use.active else stops


def ahead(after: timedelta) -> timedelta:
    """How long before it stops its owner is told."""
    return min(WARNING, after / 3)


def judge(use: Use) -> Idle:
    stops = stops_at(use)
    if stops is None or use.now:
        return Idle.USED
    if use.warned is not None and use.warned >= use.active:
        return Idle.STOP if use.moment >= stops else Idle.USED
    return Idle.WARN if use.moment >= stops - ahead(timedelta(minutes=use.minutes or 0)) else Idle.USED
