"""Celery tasks. A lost message loses nothing: the sweep runs again."""

from celery import shared_task

from apps.catalog import hints, preparation


@shared_task(name="catalog.prepare", ignore_result=True)
def prepare(version_id: str) -> None:
    preparation.prepare(version_id)


@shared_task(name="catalog.sweep", ignore_result=True)
def sweep() -> None:
    for version_id in preparation.due():
        hints.prepare(version_id)
