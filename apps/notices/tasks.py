"""Celery tasks. A lost message loses nothing: the sweep runs again."""

from datetime import timedelta

from celery import shared_task

from apps.common.clock import now
from apps.notices import delivery, fanout, periodic_checks
from apps.notices.services import incidents

MAX_ROUNDS = 10
KEEP_FOR = timedelta(days=90)


@shared_task(name="notices.sweep", ignore_result=True)
def sweep_notices() -> None:
    for _ in range(MAX_ROUNDS):
        if not fanout.spread_incidents() + delivery.deliver_due():
            return


@shared_task(name="notices.watch", ignore_result=True)
def run_periodic_checks() -> None:
    periodic_checks.run_checks()


@shared_task(name="notices.forget", ignore_result=True)
def delete_old_notices() -> None:
    before = now() - KEEP_FOR
    incidents.delete_old_incidents(before)
    delivery.delete_old_tests(before)
