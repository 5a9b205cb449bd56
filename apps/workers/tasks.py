"""Celery tasks: what changes with time alone."""

from celery import shared_task

from apps.workers.engine import store
from apps.workers.services import environments


@shared_task(name="workers.sweep", ignore_result=True)
def sync_health() -> None:
    environments.sync_health()


@shared_task(name="workers.clean", ignore_result=True)
def delete_forgotten_attempts() -> None:
    store.delete_forgotten_attempts()
