"""Celery tasks. A lost message loses nothing: the sweep runs again."""

from datetime import timedelta

from celery import shared_task

from apps.common.clock import now
from apps.notices import delivery, fanout, periodic_checks
from apps.notices.services import incidents

ROUNDS = 10
KEPT = timedelta(days=90)


@shared_task(name="notices.sweep", ignore_result=True)
def sweep() -> None:
    for _ in range(ROUNDS):
        if not fanout.spread() + delivery.deliver():
            return


@shared_task(name="notices.watch", ignore_result=True)
def watch() -> None:
    periodic_checks.look()


@shared_task(name="notices.forget", ignore_result=True)
def forget() -> None:
    before = now() - KEPT
    incidents.forget(before)
    delivery.forget(before)
