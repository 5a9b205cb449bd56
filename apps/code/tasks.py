"""Celery tasks. A lost message loses nothing: the sweep runs again."""

from celery import shared_task

from apps.code import fetch
from apps.common import wakeups


@shared_task(name="code.fetch", ignore_result=True)
def run_fetch(fetch_id: str) -> None:
    fetch.run_fetch(fetch_id)


@shared_task(name="code.sweep", ignore_result=True)
def enqueue_due_fetches() -> None:
    for fetch_id in fetch.list_due_fetches():
        wakeups.enqueue_task("code.fetch", fetch_id)
