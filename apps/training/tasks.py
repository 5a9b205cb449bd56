"""Celery's way in. Losing any of these messages loses nothing: the sweep comes again."""

import threading
from time import monotonic
from typing import Any

from celery import shared_task
from celery.signals import worker_ready

from apps.clusters import discovery
from apps.clusters import noticing as environments
from apps.common import bus
from apps.common.clock import now
from apps.scheduling.services import budgets
from apps.training.ground import code, launching, making, noticing
from apps.training.output import outputs
from apps.training.queue import load, yielding
from apps.training.reconcile import engines, reconciler
from apps.training.services import forgetting


@shared_task(name="training.reconcile", ignore_result=True)
def reconcile(*task_ids: str) -> None:
    reconciler.reconcile(*task_ids)


@shared_task(name="training.sweep", ignore_result=True)
def sweep() -> None:
    began = monotonic()
    reconciler.sweep()
    bus.keep("sweep", monotonic() - began)


@shared_task(name="training.orphans", ignore_result=True)
def orphans() -> None:
    engines.sweep()
    discovery.forget()
    making.finish_all()


@shared_task(name="training.outputs", ignore_result=True)
def keep_outputs() -> None:
    outputs.sweep()


@shared_task(name="training.code", ignore_result=True)
def forget_code() -> None:
    code.forget()


@shared_task(name="training.forget", ignore_result=True)
def forget() -> None:
    forgetting.forget()


@shared_task(name="training.windows", ignore_result=True)
def empty_windows() -> None:
    yielding.empty_windows(now())


@shared_task(name="training.budgets", ignore_result=True)
def warn_of_budgets() -> None:
    moment = now()
    budgets.warn(moment, lambda: load.spent(moment))


@shared_task(name="training.notice", ignore_result=True)
def notice() -> None:
    environments.look()
    noticing.look()


@shared_task(name="training.traces", ignore_result=True)
def traces() -> None:
    from apps.training.shown import exporting  # where something is traced

    exporting.export()


@worker_ready.connect
def stand_by(**_: Any) -> None:
    """The first task after the start is to begin as soon as any other; and what a crash left behind goes."""
    threading.Thread(target=launching.stand_by, daemon=True, name="stand-by").start()
    orphans.delay()
