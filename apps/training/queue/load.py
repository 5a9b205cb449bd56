"""Loads tasks, leases and environments as the snapshot that a scheduling pass decides on, in a few queries."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Any

from django.db.models import F, Max, Sum

from apps.clusters.models import DevEnvironment, EnvironmentStatus, Lease
from apps.common.sql import MAX_VALUES, slices
from apps.scheduling import selectors as sharing
from apps.training.core.engine_access import clusters_that_decide
from apps.training.models import Attempt, Checkpoint, Node, Task
from apps.training.queue import node_health, runtime_estimates
from apps.training.queue.runtime_estimates import Past
from apps.training.states import Kind, State
from apps.training.states.reasons import Reason
from fermi.scheduler.snapshot import Held, Place, Scene, Select, Waiting
from fermi.schema import serialization

NOTHING = Past()


def scene(now: datetime, *more: Waiting, past: Past = NOTHING) -> Scene:
    """Return the queue's current snapshot. `extra`: tasks to add to those that wait; `history`: used to estimate run
    times, which a scheduling pass does not need."""
    rows = list(in_line().values(*_COLUMNS, user=F("owner__username")))
    named = _named(row["id"] for row in rows if row["select"] is None)
    spent = _ran(row["id"] for row in rows if row["attempt"] and (row["max_run_seconds"] is not None or past.runs))
    waiting = [_waiting(row, named.get(row["id"], ()), spent.get(row["id"], 0.0), past) for row in rows]
    holders, there = tuple(held(now, past)), tuple(places(node_health.failures(now)))
    return Scene(
        now=now.timestamp(),
        waiting=(*waiting, *more),
        held=holders,
        places=there,
        projects=sharing.projects(now, holders, there),
        reservations=tuple(sharing.reservations(now)),
    )


def in_line() -> Any:
    """Return a query for tasks that could start if they had their environments."""
    return Task.objects.filter(state=State.QUEUED, in_line_at__isnull=False, stop_requested_at=None, paused_at=None)


_COLUMNS = (
    "id", "name", "project_id", "cluster_id", "created_at", "select", "priority", "place", "preemptible",
    "max_run_seconds", "attempt", "owner_id", "framework", "model_id", "reason", "turn",
)  # fmt: skip


def _waiting(row: Mapping[str, Any], named: tuple[str, ...], ran: float, past: Past) -> Waiting:
    longest = row["max_run_seconds"]
    return Waiting(
        task=row["id"],
        name=row["name"],
        project=row["project_id"],
        user=row["user"],
        cluster=row["cluster_id"],
        since=row["created_at"].timestamp(),
        named=named,
        select=selected(row["select"]),
        priority=row["priority"],
        place=row["place"],
        preemptible=row["preemptible"],
        max_run=None if longest is None else max(longest - ran, 0.0),
        expected_run=past.left(row, ran),
        promised=tuple(row["turn"].get("needs", ())) if row["reason"] == Reason.MAKING_ROOM else (),
    )


def selected(data: Mapping[str, Any] | None) -> Select | None:
    """Return the stored capacity request; None if the task named its environments."""
    return None if data is None else serialization.load(Select, data)


def _named(tasks: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Return the environments that each task named; one that was deleted is an empty string."""
    found: defaultdict[str, list[str]] = defaultdict(list)
    wanted = list(tasks)
    rows = Node.objects.filter(task__in=wanted if len(wanted) <= MAX_VALUES else in_line().filter(select=None))
    for task, environment in rows.order_by("node_rank").values_list("task_id", "environment_id"):
        found[task].append(environment or "")
    return {task: tuple(keys) for task, keys in found.items()}


def _ran(tasks: Iterable[str]) -> dict[str, float]:
    """Return for how many seconds ended attempts held environments, by task."""
    found: dict[str, float] = {}
    for part in slices(tasks):
        ended = Attempt.objects.filter(task__in=part, ended_at__isnull=False).values("task")
        rows = ended.annotate(total=Sum(F("ended_at") - F("created_at"))).values_list("task", "total")
        found |= {task: total.total_seconds() for task, total in rows}
    return found


def held(now: datetime, past: Past = NOTHING) -> list[Held]:
    """Return the tasks that hold environments. A holder whose task is gone holds them for ever."""
    leases: defaultdict[str, list[tuple[str, datetime]]] = defaultdict(list)
    for environment, holder, since in Lease.objects.values_list("environment_id", "holder", "since"):
        leases[holder].append((environment, since))
    rows: dict[str, dict[str, Any]] = {}
    for part in slices(leases):
        found: Iterable[Any] = Task.objects.filter(pk__in=part).values(
            "id", "kind", "name", "project_id", "priority", "preemptible", "borrowed", "min_run_seconds", "state",
            "max_run_seconds", "deadline_at", "paused_at", "preempted_at", "stop_requested_at", "attempt", "inside",
            "cluster_id", *runtime_estimates.COLUMNS, user=F("owner__username"),
        )  # fmt: skip
        rows |= {row["id"]: row for row in found}
    again = [
        key for key, row in rows.items() if row["max_run_seconds"] is not None or (past.runs and row["attempt"] > 1)
    ]
    spent, saved = _ran(again), _saved(rows)
    engines = clusters_that_decide() if rows else []
    return [
        _expected(now, past, rows.get(key), spent.get(key, 0.0),
                  _held(key, taken, rows.get(key), spent.get(key, 0.0), saved.get(key), engines))
        for key, taken in leases.items()
    ]  # fmt: skip


def spent(now: datetime) -> Mapping[str, sharing.Spent]:
    """Return what each project has spent this month so far, by project id."""
    return sharing.spent_by_project(now, held(now), places())


def _expected(now: datetime, past: Past, row: Mapping[str, Any] | None, spent: float, held: Held) -> Held:
    if row is None or row["kind"] != Kind.TRAINING or not past.runs:
        return held
    left = past.left(row, spent + now.timestamp() - held.since)
    return held if left is None else replace(held, expected=now.timestamp() + left)


def _held(
    task: str, taken: list[tuple[str, datetime]], row: Mapping[str, Any] | None, spent: float, saved: datetime | None,
    engines: Collection[str],
) -> Held:  # fmt: skip
    """Return the running task. `engines`: clusters whose engines have their own queues. Only the engine's queue may
    preempt what it scheduled; a pre-flight test and a drill are short, and run before a waiting task."""
    since = min(moment for _, moment in taken)
    keys = tuple(key for key, _ in taken)
    if row is None:
        return Held(task, "", "", keys, since.timestamp(), stays=True)
    until = None
    if row["max_run_seconds"] is not None:
        left = since + timedelta(seconds=row["max_run_seconds"] - spent)
        until = (row["deadline_at"] if row["state"] == State.RUNNING and row["deadline_at"] else left).timestamp()
    ours = row["inside"] or row["cluster_id"] not in engines
    return Held(
        task=task,
        name=row["name"],
        project=row["project_id"],
        user=row["user"],
        places=keys,
        since=since.timestamp(),
        priority=row["priority"],
        preemptible=row["preemptible"],
        min_run=float(row["min_run_seconds"]),
        until=until,
        saved_at=saved.timestamp() if saved and saved >= since else None,
        leaving=bool(row["paused_at"] or row["preempted_at"] or row["stop_requested_at"])
        or row["state"] == State.STOPPING,
        stays=row["kind"] != Kind.TRAINING or not ours,
    )


def _saved(tasks: Iterable[str]) -> dict[str, datetime]:
    """Return when each task's newest checkpoint was saved."""
    found: dict[str, datetime] = {}
    for part in slices(tasks):
        rows = Checkpoint.objects.filter(task__in=part).values("task").annotate(newest=Max("at"))
        found |= dict(rows.values_list("task", "newest"))
    return found


def places(failures: Mapping[str, int] = MappingProxyType({}), among: Collection[str] | None = None) -> list[Place]:
    """Return all environments, or those with these `ids`. `failures`: how often each has failed recently."""
    rows = DevEnvironment.objects.all() if among is None else DevEnvironment.objects.filter(pk__in=among)
    return [
        Place(
            id=row["id"],
            name=row["name"],
            project=row["project_id"],
            cluster=row["cluster_id"],
            zone=row["zone_id"],
            zone_name=row["zone__name"],
            gpu_type=row["gpu_type"],
            gpus=row["gpu_count"],
            shared=row["shared"],
            labels=row["labels"],
            usable=row["status"] == EnvironmentStatus.RUNNING and not row["cordoned"],
            health=failures.get(row["id"], 0),
            link=f"{row['zone_id']}/infiniband" if row["network"].get("infiniband") else "",
            made_for=row["hosted__task"] if row["hosted__afterwards"] else "",
        )
        for row in rows.values(
            "id", "name", "project_id", "cluster_id", "zone_id", "zone__name", "gpu_type", "gpu_count", "shared",
            "labels", "status", "cordoned", "network", "hosted__task", "hosted__afterwards",
        )
    ]  # fmt: skip
