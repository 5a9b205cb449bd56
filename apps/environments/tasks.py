"""Celery's way in. Losing any of these messages loses nothing: the sweep comes again."""

from celery import shared_task

from apps.environments import reconcile as life


@shared_task(name="environments.reconcile", ignore_result=True)
def reconcile(environment_id: str) -> None:
    life.reconcile(environment_id)


@shared_task(name="environments.sweep", ignore_result=True)
def sweep() -> None:
    life.sweep()
