"""The present time, read here only so that tests can stop the clock; and time zones by name."""

from datetime import datetime
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from django.utils import timezone


def now() -> datetime:
    """Return the present time, aware, in UTC."""
    return timezone.now()


def get_time_zone(name: str) -> ZoneInfo | None:
    """Return the time zone of this name (`Asia/Shanghai`), or None if there is none."""
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return None
