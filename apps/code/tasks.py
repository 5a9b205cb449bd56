"""Celery tasks. A lost message loses nothing: the sweep runs again."""

from celery import shared_task

from apps.code import fetch as fetching
from apps.code import hints


@shared_task(name="code.fetch", ignore_result=True)
def fetch(fetch_id: str) -> None:
    fetching.fetch(fetch_id)


@shared_task(name="code.sweep", ignore_result=True)
def sweep() -> None:
    for fetch_id in fetching.due():
        hints.fetch(fetch_id)
