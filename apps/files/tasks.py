"""Celery tasks. A lost message loses nothing: the sweep runs again."""

from celery import shared_task

from apps.files.services import store_sync, uploads


@shared_task(name="files.sweep", ignore_result=True)
def sweep_files() -> None:
    store_sync.apply_due()
    uploads.check_due_uploads()


@shared_task(name="files.forget", ignore_result=True)
def delete_expired() -> None:
    uploads.delete_expired()
