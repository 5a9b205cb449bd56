"""When an idle environment stops by itself. Pure functions."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from apps.environments.states.deadlines import WARN_BEFORE_STOP


class IdleVerdict(StrEnum):
    USED = "used"
    WARN = "warn"  # its owner is to hear that it will stop
    STOP = "stop"


@dataclass(frozen=True, slots=True)
class IdleFacts:
    """Facts about idleness.

    active     the last activity: of a kernel, a connection, a GPU or a task; at least when it started to run
    now        it is in use at this moment
    warned     when its owner was warned; a warning before the last activity no longer counts
    """

    moment: datetime
    active: datetime
    now: bool = False
    minutes: int | None = None
    keep_until: datetime | None = None
    warned: datetime | None = None


def compute_stop_time(use: IdleFacts) -> datetime | None:
    """Return when the environment stops, or None if it does not stop by itself. After a late warning the owner still
    gets the whole warning time."""
    if not use.minutes:
        return None
    after = timedelta(minutes=use.minutes)
    stops = max(use.active + after, use.keep_until or use.active)
    return max(stops, use.warned + compute_warning_span(after)) if use.warned and use.warned >= use.active else stops


def compute_warning_span(after: timedelta) -> timedelta:
    """Return how long before the stop the owner is warned."""
    return min(WARN_BEFORE_STOP, after / 3)


def judge_idle(use: IdleFacts) -> IdleVerdict:
    """Return whether the environment is in use, its owner is to be warned, or it is to stop."""
    stops = compute_stop_time(use)
    if stops is None or use.now:
        return IdleVerdict.USED
    if use.warned is not None and use.warned >= use.active:
        return IdleVerdict.STOP if use.moment >= stops else IdleVerdict.USED
    return (
        IdleVerdict.WARN
        if use.moment >= stops - compute_warning_span(timedelta(minutes=use.minutes or 0))
        else IdleVerdict.USED
    )
