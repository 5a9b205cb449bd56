"""The environments that workers form: the workers of one node in one group (or in none) are one environment.

Which workers an environment has changes only while it is unused, so that a task trains on what it was planned with.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from datetime import datetime
from typing import Any

from django.db import IntegrityError, transaction

from apps.clusters.discovery import make_environment_id
from apps.clusters.models import AvailabilityZone, Cluster, DevEnvironment, EnvironmentStatus, Lease
from apps.common.clock import now
from apps.common.errors import ApiError
from apps.training.public import ACTIVE_STATES, Node, enqueue_task, enqueue_waiting_tasks
from apps.workers import health
from apps.workers.models import Worker
from fermi.jobs import gpus
from fermi.jobs.spec import Problem

CLUSTER_ID = "workers"
HEARD_STATUSES = ("online", "suspect")


def get_workers_cluster() -> Cluster:
    """Return the cluster of all workers; it is created by the first registration."""
    return Cluster.objects.get_or_create(pk=CLUSTER_ID, defaults={"name": CLUSTER_ID, "backend": "agent"})[0]


def find_holders(environments: Iterable[str]) -> dict[str, str]:
    """Return which task uses each of the environments: one that holds it, or that waits for it. Locks the
    environments."""
    keys = sorted(set(environments))
    list(DevEnvironment.objects.select_for_update().filter(pk__in=keys).order_by("pk"))  # nobody leases one meanwhile
    waiting = Node.objects.filter(environment__in=keys, task__state__in=ACTIVE_STATES)
    return {
        **dict(waiting.values_list("environment_id", "task_id")),
        **dict(Lease.objects.filter(environment__in=keys).values_list("environment_id", "holder")),
    }


def find_in_use(workers: Sequence[Worker], field: str) -> list[Problem]:
    """Return why these workers may not be moved or removed now."""
    holders = find_holders(worker.environment_id for worker in workers if worker.environment_id)
    made = [
        Problem(f"{field}.{index}", "WORKER_HELD", {"worker": worker.pk, "environment": worker.held_by})
        for index, worker in enumerate(workers)
        if worker.held_by
    ]
    return made + [
        Problem(f"{field}.{index}", "WORKER_IN_USE", {"worker": worker.pk, "task": holders[worker.environment_id]})
        for index, worker in enumerate(workers)
        if worker.environment_id in holders
    ]


def sync_environments(project: str, nodes: Collection[str]) -> None:
    """Update the environments of these nodes to their workers, in the caller's transaction."""
    home, judge = get_workers_cluster(), health.read_worker_health()
    rows = Worker.objects.filter(project=project, node__in=nodes).select_related("group", "report")
    on_node: defaultdict[str, int] = defaultdict(int)
    members: defaultdict[str, list[Worker]] = defaultdict(list)
    for worker in rows.order_by("node", "number"):
        on_node[worker.node] += 1
        if worker.held_by:  # what it is part of, `hosting` says
            continue
        members[make_environment_id(home.pk, f"{project}/{worker.node}/{worker.group_id or ''}")].append(worker)
    there = DevEnvironment.objects.filter(cluster=home, project=project, discovered_as__in=nodes)
    there.exclude(pk__in=members).delete()
    known = {environment.pk: environment for environment in there.filter(pk__in=members)}
    for key, workers in members.items():
        before = known[key].status if key in known else EnvironmentStatus.RUNNING  # if all of it was ever heard
        status = _compute_status(before, [judge.status(worker.report.at) for worker in workers])
        facts = {**_build_columns(workers, on_node[workers[0].node]), "status": status}
        if key in known:
            DevEnvironment.objects.filter(pk=key).update(**facts, **_build_started_at(before, status))
        else:
            _create_environment(project, home, key, facts)
        Worker.objects.filter(pk__in=[worker.pk for worker in workers]).exclude(environment=key).update(environment=key)


def sync_health() -> int:
    """Update the environments' status from the heartbeats of their workers. Returns how many were changed."""
    judge, changed, back = health.read_worker_health(), 0, False
    lost: list[str] = []
    heard: defaultdict[tuple[str, str], list[datetime | None]] = defaultdict(list)
    rows = Worker.objects.filter(held_by="").exclude(environment=None)
    row: Any
    for row in rows.values_list("environment_id", "environment__status", "report__at"):
        heard[row[0], row[1]].append(row[2])
    for (key, before), moments in heard.items():
        status = _compute_status(before, [judge.status(at) for at in moments])
        if status != before:
            same = DevEnvironment.objects.filter(pk=key, status=before)
            changed += same.update(status=status, **_build_started_at(before, status))
            back = back or status == EnvironmentStatus.RUNNING
            if status != EnvironmentStatus.RUNNING:
                lost.append(key)
    if back:
        enqueue_waiting_tasks()
    for holder in set(Lease.objects.filter(environment__in=lost).values_list("holder", flat=True)):
        enqueue_task(holder)  # its attempt has ended: do not wait for the next sweep
    return changed


def _build_columns(workers: Sequence[Worker], on_node: int) -> dict[str, Any]:
    """Return the columns of an environment; what several environments share of a host is divided among them."""
    first, told = workers[0], workers[-1].facts
    name = f"{first.node} ({first.group.name})" if first.group else first.node
    zone, _ = AvailabilityZone.objects.get_or_create(name=str(told.get("zone") or CLUSTER_ID)[:100])
    return {
        "name": name,
        "zone_id": zone.pk,
        "gpu_type": gpus.shorten_name(told.get("gpuType") or "")[:40],
        **_build_gpu_columns(workers),
        "cpu_cores": max(1, told.get("cpuCores", 1) * len(workers) // on_node),
        "memory_gb": max(1, told.get("memoryGb", 1) * len(workers) // on_node),
        **build_host_columns(workers),
        "discovered_as": first.node,
    }


def _build_gpu_columns(workers: Sequence[Worker]) -> dict[str, Any]:
    """Return the GPU columns. The only worker of a host without a GPU is an environment without GPUs, on which one rank
    runs. Where several processes run, or the host reports so, they emulate GPUs."""
    if len(workers) == 1 and workers[0].gpu is None and not workers[0].facts.get("emulated"):
        return {"gpu_count": 0, "emulated": False}
    return {"gpu_count": len(workers), "emulated": not _have_gpus(workers)}


def _have_gpus(workers: Sequence[Worker]) -> bool:
    return all(worker.gpu is not None for worker in workers) and not workers[-1].facts.get("emulated")


def build_host_columns(workers: Sequence[Worker]) -> dict[str, Any]:
    """Return what only the host knows, and what training on these workers needs."""
    told, on_gpu = workers[-1].facts, _have_gpus(workers)
    return {
        "host": (told.get("host") or workers[0].node)[:200],
        "ip": told.get("ip") or None,
        "versions": {key: str(value)[:60] for key, value in (told.get("versions") or {}).items() if value},
        "network": told.get("network") or {},
        "engine": {
            "workers": [worker.pk for worker in workers],
            **({"gpus": [worker.gpu for worker in workers]} if on_gpu else {}),
            **({"address": told["address"]} if told.get("address") else {}),
            **({"lacks": told["lacks"]} if told.get("lacks") is not None else {}),
        },
    }


def _compute_status(before: str, workers: Sequence[health.Status]) -> str:
    """Return the status: usable when all workers are online. A worker that was silent for a moment changes nothing,
    either way."""
    if any(status not in HEARD_STATUSES for status in workers):
        return EnvironmentStatus.UNHEALTHY
    return EnvironmentStatus.RUNNING if all(status == "online" for status in workers) else before


def _build_started_at(before: str, after: str) -> dict[str, Any]:
    """Return the change of `started_at`: uptime counts from when the environment became usable."""
    if before == after:
        return {}
    return {"started_at": now() if after == EnvironmentStatus.RUNNING else None}


def _create_environment(project: str, home: Cluster, key: str, facts: dict[str, Any]) -> None:
    try:
        with transaction.atomic():
            started = now() if facts["status"] == EnvironmentStatus.RUNNING else None
            DevEnvironment.objects.create(pk=key, project_id=project, cluster=home, started_at=started, **facts)
    except IntegrityError:
        raise ApiError(409, "NODE_NAME_TAKEN", "workers", environment=facts["name"]) from None
