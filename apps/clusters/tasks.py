"""Celery tasks. A lost message loses nothing: the next one does the same."""

from celery import shared_task

from apps.clusters import expiry


@shared_task(name="clusters.endings", ignore_result=True)
def check_expiry() -> None:
    expiry.notify_expiring()
