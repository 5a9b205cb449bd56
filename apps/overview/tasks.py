"""Celery tasks of the overview."""

from celery import shared_task

from apps.common.clock import now
from apps.overview import hourly_use


@shared_task(name="overview.hours", ignore_result=True)
def book_hours() -> None:
    hourly_use.book_hours(now())
