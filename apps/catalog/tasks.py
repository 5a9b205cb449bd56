"""Celery tasks. A lost message loses nothing: the sweep runs again."""

from celery import shared_task

from apps.catalog import preparation
from apps.common import wakeups


@shared_task(name="catalog.prepare", ignore_result=True)
def prepare_version(version_id: str) -> None:
    preparation.prepare_version(version_id)


@shared_task(name="catalog.sweep", ignore_result=True)
def enqueue_due_versions() -> None:
    for version_id in preparation.list_due_versions():
        wakeups.enqueue_task("catalog.prepare", version_id)
