"""The one place that reads the time, so that a test can stand still."""

from datetime import datetime

from django.utils import timezone


def now() -> datetime:
    """Aware, UTC."""
    return timezone.now()
