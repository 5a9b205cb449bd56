"""Moments of a cron expression in a time zone, by cronsim: five fields as cron(8) of Debian reads them.

clocks go forward    a moment in the hour that does not exist comes right after it
clocks go back       a fixed moment in the hour that comes twice comes once, the first time; `*` in the minutes or
                     hours goes on as time does
"""

from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import islice, takewhile

from cronsim import CronSim, CronSimError

from apps.common.clock import get_time_zone
from fermi.jobs.spec import Problem

MAX_PAST = 1_000
"""Most past moments that are counted."""
MAX_STEPS = 10_000
"""Past moments that are stepped over one by one, as the schedule would have come to them; of more, only the newest are
looked for, backwards."""


def find_problems(expression: str, zone: str, at: datetime) -> list[Problem]:
    """Return what is wrong with an expression and a time zone."""
    found = []
    if get_time_zone(zone) is None:
        found.append(Problem("zone", "TIMEZONE_UNKNOWN", {"found": zone}))
    if len(expression.split()) != 5:
        found.append(Problem("cron", "CRON_FIELDS", {"found": expression, "count": len(expression.split())}))
        return found
    try:
        CronSim(expression, at.astimezone(UTC))
    except CronSimError as error:
        found.append(Problem("cron", "CRON_INVALID", {"found": expression, "part": str(error).removeprefix("Bad ")}))
        return found
    if find_next(expression, "UTC", at) is None:
        found.append(Problem("cron", "CRON_NEVER", {"found": expression}))
    return found


def find_next(expression: str, zone: str, after: datetime) -> datetime | None:
    """Return the first moment after `after`, in UTC; None if there is none."""
    return next(iterate_moments(expression, zone, after), None)


def iterate_moments(expression: str, zone: str, after: datetime) -> Iterator[datetime]:
    """Yield the moments after `after`, in UTC."""
    before = after
    for moment in CronSim(expression, after.astimezone(get_time_zone(zone) or UTC)):
        found = moment.astimezone(UTC)
        if found > before:
            before = found
            yield found


def list_past(expression: str, zone: str, first: datetime, until: datetime) -> list[datetime]:
    """Return the moments from `first`, which is one, up to and with `until`, oldest first; the newest MAX_PAST of
    them. Work is bounded, however long ago `first` was."""
    if first > until:
        return []
    later = islice(takewhile(lambda one: one <= until, iterate_moments(expression, zone, first)), MAX_STEPS + 1)
    found = [first, *later]
    if len(found) > MAX_STEPS:
        near = until.astimezone(get_time_zone(zone) or UTC)
        found = [one.astimezone(UTC) for one in islice(CronSim(expression, near, reverse=True), MAX_PAST)][::-1]
    return found[-MAX_PAST:]
