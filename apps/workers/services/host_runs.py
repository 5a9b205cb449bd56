"""Rows of dev environments on workers' hosts: what a host's agent is told, and which workers an environment holds.

All of this happens in the caller's transaction, after it took a number from `revisions`: changes come one after the
other.
"""

from collections.abc import Iterable
from typing import Any

from apps.common.clock import now
from apps.workers.models import Channel, HostRun, Worker
from apps.workers.services import environments


def build_host_orders(worker: Worker) -> dict[str, Any]:
    """Return what the worker's agent is to run on its host, and the channels that are waited for. A run that was given
    to another machine is not this one's."""
    rows = list(HostRun.objects.filter(worker=worker.pk, machine=worker.machine).order_by("name"))
    waiting = Channel.objects.filter(worker=worker.pk, until__gt=now())
    found = {
        "runs": [_serialize_run(row) for row in rows if not row.removing],
        "removed": [row.environment for row in rows if row.removing],
        "channels": [{"id": one.pk, "run": one.run} for one in waiting.order_by("until")],
    }
    return found if any(found.values()) else {}


def update_host_orders(worker: str, revision: int) -> None:
    """Update what the worker is told. Does nothing if the worker was deleted."""
    for one in Worker.objects.filter(pk=worker):
        one.hosted, one.generation = build_host_orders(one), revision
        one.save(update_fields=["hosted", "generation"])


def hold_workers(environment: str, workers: Iterable[Worker]) -> None:
    """Have the environment hold these workers and no others: they leave the environment of their node."""
    wanted = [worker.pk for worker in workers]
    before = Worker.objects.filter(held_by=environment).exclude(pk__in=wanted)
    touched = {
        *before.values_list("project", "node"),
        *Worker.objects.filter(pk__in=wanted).values_list("project", "node"),
    }
    before.update(held_by="", environment=None)
    Worker.objects.filter(pk__in=wanted).update(held_by=environment, environment=environment)
    for project, node in touched:
        environments.sync_environments(project, {node})


def release_workers(environment: str) -> None:
    """Release all workers of the environment."""
    hold_workers(environment, ())


def _serialize_run(row: HostRun) -> dict[str, Any]:
    stop = {"graceSeconds": row.grace_seconds} if row.stopped else None
    return {"name": row.name, "environment": row.environment, "run": row.number, "stop": stop}
