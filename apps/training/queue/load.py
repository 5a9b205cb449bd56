"""Loads tasks, leases and environments as the snapshot that a scheduling pass decides on, in a few queries."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Any

from django.db.models import F, Max, Sum

from apps.clusters.models import DevEnvironment, EnvironmentStatus, Lease
from apps.common.sql import MAX_VALUES, split_keys
from apps.scheduling import selectors
from apps.training.core.engine_access import list_clusters_with_queue
from apps.training.models import Attempt, Checkpoint, Node, Task
from apps.training.queue import node_health, runtime_estimates
from apps.training.queue.runtime_estimates import RuntimeHistory
from apps.training.states import TaskKind, TaskState
from apps.training.states.reasons import TaskReason
from fermi.scheduler.snapshot import EnvironmentInfo, RunningTask, SchedulerSnapshot, Select, WaitingTask
from fermi.schema import serialization

NO_HISTORY = RuntimeHistory()


def load_snapshot(now: datetime, *extra: WaitingTask, history: RuntimeHistory = NO_HISTORY) -> SchedulerSnapshot:
    """Return the queue's current snapshot. `extra`: tasks to add to those that wait; `history`: used to estimate run
    times, which a scheduling pass does not need."""
    rows = list(filter_in_queue().values(*_QUEUE_COLUMNS, user=F("owner__username")))
    named = _load_named_environments(row["id"] for row in rows if row["select"] is None)
    spent = _load_held_seconds(
        row["id"] for row in rows if row["attempt"] and (row["max_run_seconds"] is not None or history.runs)
    )
    waiting = [_build_waiting_task(row, named.get(row["id"], ()), spent.get(row["id"], 0.0), history) for row in rows]
    holders, there = (
        tuple(load_running_tasks(now, history)),
        tuple(load_environments(node_health.get_failure_counts(now))),
    )
    return SchedulerSnapshot(
        now=now.timestamp(),
        waiting=(*waiting, *extra),
        running=holders,
        places=there,
        projects=selectors.read_projects(now, holders, there),
        reservations=tuple(selectors.list_reservation_windows(now)),
    )


def filter_in_queue() -> Any:
    """Return a query for tasks that could start if they had their environments."""
    return Task.objects.filter(state=TaskState.QUEUED, in_line_at__isnull=False, stop_requested_at=None, paused_at=None)


_QUEUE_COLUMNS = (
    "id", "name", "project_id", "cluster_id", "created_at", "select", "priority", "place", "preemptible",
    "max_run_seconds", "attempt", "owner_id", "framework", "model_id", "reason", "turn",
)  # fmt: skip


def _build_waiting_task(
    row: Mapping[str, Any], named: tuple[str, ...], held_seconds: float, history: RuntimeHistory
) -> WaitingTask:
    longest = row["max_run_seconds"]
    return WaitingTask(
        task=row["id"],
        name=row["name"],
        project=row["project_id"],
        user=row["user"],
        cluster=row["cluster_id"],
        since=row["created_at"].timestamp(),
        named=named,
        select=load_select(row["select"]),
        priority=row["priority"],
        position=row["place"],
        preemptible=row["preemptible"],
        max_run=None if longest is None else max(longest - held_seconds, 0.0),
        expected_run=history.left(row, held_seconds),
        promised=tuple(row["turn"].get("needs", ())) if row["reason"] == TaskReason.MAKING_ROOM else (),
    )


def load_select(data: Mapping[str, Any] | None) -> Select | None:
    """Return the stored capacity request; None if the task named its environments."""
    return None if data is None else serialization.load(Select, data)


def _load_named_environments(tasks: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Return the environments that each task named; one that was deleted is an empty string."""
    found: defaultdict[str, list[str]] = defaultdict(list)
    wanted = list(tasks)
    rows = Node.objects.filter(task__in=wanted if len(wanted) <= MAX_VALUES else filter_in_queue().filter(select=None))
    for task, environment in rows.order_by("node_rank").values_list("task_id", "environment_id"):
        found[task].append(environment or "")
    return {task: tuple(keys) for task, keys in found.items()}


def _load_held_seconds(tasks: Iterable[str]) -> dict[str, float]:
    """Return for how many seconds ended attempts held environments, by task."""
    found: dict[str, float] = {}
    for part in split_keys(tasks):
        ended = Attempt.objects.filter(task__in=part, ended_at__isnull=False).values("task")
        rows = ended.annotate(total=Sum(F("ended_at") - F("created_at"))).values_list("task", "total")
        found |= {task: total.total_seconds() for task, total in rows}
    return found


def load_running_tasks(now: datetime, history: RuntimeHistory = NO_HISTORY) -> list[RunningTask]:
    """Return the tasks that hold environments. A holder whose task is gone holds them for ever."""
    leases: defaultdict[str, list[tuple[str, datetime]]] = defaultdict(list)
    for environment, holder, since in Lease.objects.values_list("environment_id", "holder", "since"):
        leases[holder].append((environment, since))
    rows: dict[str, dict[str, Any]] = {}
    for part in split_keys(leases):
        found: Iterable[Any] = Task.objects.filter(pk__in=part).values(
            "id", "kind", "name", "project_id", "priority", "preemptible", "borrowed", "min_run_seconds", "state",
            "max_run_seconds", "deadline_at", "paused_at", "preempted_at", "stop_requested_at", "attempt", "inside",
            "cluster_id", *runtime_estimates.SIMILARITY_COLUMNS, user=F("owner__username"),
        )  # fmt: skip
        rows |= {row["id"]: row for row in found}
    again = [
        key for key, row in rows.items() if row["max_run_seconds"] is not None or (history.runs and row["attempt"] > 1)
    ]
    spent, saved = _load_held_seconds(again), _load_last_saves(rows)
    engines = list_clusters_with_queue() if rows else []
    return [
        _with_expected_end(now, history, rows.get(key), spent.get(key, 0.0),
                  _build_running_task(key, taken, rows.get(key), spent.get(key, 0.0), saved.get(key), engines))
        for key, taken in leases.items()
    ]  # fmt: skip


def load_monthly_spend(now: datetime) -> Mapping[str, selectors.MonthlySpend]:
    """Return what each project has spent this month so far, by project id."""
    return selectors.sum_spend(now, load_running_tasks(now), load_environments())


def _with_expected_end(
    now: datetime, history: RuntimeHistory, row: Mapping[str, Any] | None, spent: float, task: RunningTask
) -> RunningTask:
    if row is None or row["kind"] != TaskKind.TRAINING or not history.runs:
        return task
    left = history.left(row, spent + now.timestamp() - task.since)
    return task if left is None else replace(task, expected=now.timestamp() + left)


def _build_running_task(
    task: str, taken: list[tuple[str, datetime]], row: Mapping[str, Any] | None, spent: float, saved: datetime | None,
    engines: Collection[str],
) -> RunningTask:  # fmt: skip
    """Return the running task. `engines`: clusters whose engines have their own queues. Only the engine's queue may
    preempt what it scheduled; a pre-flight test and a drill are short, and run before a waiting task."""
    since = min(moment for _, moment in taken)
    keys = tuple(key for key, _ in taken)
    if row is None:
        return RunningTask(task, "", "", keys, since.timestamp(), stays=True)
    until = None
    if row["max_run_seconds"] is not None:
        left = since + timedelta(seconds=row["max_run_seconds"] - spent)
        until = (row["deadline_at"] if row["state"] == TaskState.RUNNING and row["deadline_at"] else left).timestamp()
    ours = row["inside"] or row["cluster_id"] not in engines
    return RunningTask(
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
        or row["state"] == TaskState.STOPPING,
        stays=row["kind"] != TaskKind.TRAINING or not ours,
    )


def _load_last_saves(tasks: Iterable[str]) -> dict[str, datetime]:
    """Return when each task's newest checkpoint was saved."""
    found: dict[str, datetime] = {}
    for part in split_keys(tasks):
        rows = Checkpoint.objects.filter(task__in=part).values("task").annotate(newest=Max("at"))
        found |= dict(rows.values_list("task", "newest"))
    return found


def load_environments(
    failures: Mapping[str, int] = MappingProxyType({}), ids: Collection[str] | None = None
) -> list[EnvironmentInfo]:
    """Return all environments, or those with these `ids`. `failures`: how often each has failed recently."""
    rows = DevEnvironment.objects.all() if ids is None else DevEnvironment.objects.filter(pk__in=ids)
    return [
        EnvironmentInfo(
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
