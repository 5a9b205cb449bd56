"""Celery tasks. Losing any of these messages loses nothing: the next sweep does the same."""

import threading
from time import monotonic
from typing import Any

from celery import shared_task
from celery.signals import worker_ready

from apps.clusters import discovery
from apps.clusters import notifications as environments
from apps.common import pubsub
from apps.common.clock import now
from apps.scheduling.services import budgets
from apps.training.core import code, engine_access, facts, notifications, task_environments
from apps.training.logs import outputs
from apps.training.queue import load, preemption_requests
from apps.training.reconcile import engine_watch, reconciler
from apps.training.services import library_caches, retention


@shared_task(name="training.reconcile", ignore_result=True)
def reconcile_tasks(*task_ids: str) -> None:
    """Run passes over these tasks."""
    reconciler.reconcile_tasks(*task_ids)


@shared_task(name="training.sweep", ignore_result=True)
def reconcile_due_tasks() -> None:
    """Run passes over all due tasks, and publish how long that took, in seconds."""
    began = monotonic()
    reconciler.reconcile_due_tasks()
    pubsub.set_figure("sweep", monotonic() - began)


@shared_task(name="training.orphans", ignore_result=True)
def delete_orphans() -> None:
    """Delete attempts, discovered environments and created environments that nothing needs any more."""
    engine_watch.delete_orphans()
    discovery.delete_gone_environments()
    task_environments.finish_all_environments()


@shared_task(name="training.outputs", ignore_result=True)
def update_outputs() -> None:
    """Scan the outputs that are due."""
    outputs.update_outputs()


@shared_task(name="training.code", ignore_result=True)
def delete_unused_code() -> None:
    """Delete snapshots of code that no task uses."""
    code.delete_unused_snapshots()


@shared_task(name="training.forget", ignore_result=True)
def delete_expired_tasks() -> None:
    """Delete tasks that are older than the retention time."""
    retention.delete_expired_tasks()
    facts.delete_unused_sets()


@shared_task(name="training.caches", ignore_result=True)
def clean_caches(project: str = "", keep_bytes: str = "") -> None:
    """Clean the caches of libraries of all projects, or of one down to a number of bytes."""
    library_caches.clean_caches(project, int(keep_bytes) if keep_bytes else None)


@shared_task(name="training.windows", ignore_result=True)
def preempt_for_reservations() -> None:
    """Preempt tasks on environments whose reservation or maintenance has begun."""
    preemption_requests.preempt_for_reservations(now())


@shared_task(name="training.budgets", ignore_result=True)
def warn_of_budgets() -> None:
    """Notify about budgets that are nearly spent."""
    moment = now()
    budgets.warn_budgets(moment, lambda: load.load_monthly_spend(moment))


@shared_task(name="training.notice", ignore_result=True)
def send_notifications() -> None:
    """Notify about lost environments and long waits."""
    environments.notify_lost_environments()
    notifications.notify_long_waits()


@shared_task(name="training.traces", ignore_result=True)
def export_traces() -> None:
    """Export the parts of traces that are due."""
    from apps.training.traces import export  # where something is traced

    export.export_due_parts()


@worker_ready.connect
def warm_up_clusters(**_: Any) -> None:
    """Prepare clusters in a thread of its own when the worker is ready, so that the first task starts as fast as any
    other, and delete what a crash left behind."""
    threading.Thread(target=engine_access.warm_up_clusters, daemon=True, name="stand-by").start()
    delete_orphans.delay()
