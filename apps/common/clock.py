"""The one place that reads the time, so that a test can stand still; and time zones by name."""

from datetime import datetime
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from django.utils import timezone


def now() -> datetime:
    """Aware, UTC."""
    return timezone.now()


def zone(name: str) -> ZoneInfo | None:
    """The time zone that is called so (`Asia/Shanghai`); None: there is none."""
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return None
