"""Quiet hours: a time of each day in a user's own time zone."""

from datetime import datetime, timedelta

from apps.common.clock import get_time_zone

MINUTES_PER_DAY = 24 * 60


def compute_send_time(moment: datetime, begins: int | None, ends: int | None, timezone: str) -> datetime:
    """Return when a message of this moment may be sent: at once, or when the quiet hours end. `begins`, `ends`: minutes
    of the day; equal means no quiet hours. A night across midnight begins on the day before."""
    where = get_time_zone(timezone)
    if begins is None or ends is None or begins == ends or where is None:
        return moment
    local = moment.astimezone(where)
    minute = local.hour * 60 + local.minute
    length, passed = (ends - begins) % MINUTES_PER_DAY, (minute - begins) % MINUTES_PER_DAY
    if passed >= length:
        return moment
    over = local.replace(tzinfo=None, second=0, microsecond=0) + timedelta(minutes=length - passed)
    return over.replace(tzinfo=where).astimezone(moment.tzinfo)  # by the wall clock, whatever the night skips
