"""Celery tasks. A lost message loses nothing: the sweep runs again."""

from celery import shared_task

from apps.files.services import store_sync, uploads


@shared_task(name="files.sweep", ignore_result=True)
def sweep() -> None:
    store_sync.sweep()
    uploads.sweep()


@shared_task(name="files.forget", ignore_result=True)
def forget() -> None:
    uploads.forget()
