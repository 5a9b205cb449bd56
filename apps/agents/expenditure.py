"""What a purse has spent, and what its tasks may still use."""

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

from django.conf import settings
from django.db.models import QuerySet

from apps.accounts.models import AuditEvent
from apps.agents.models import Purse
from apps.clusters.models import DevEnvironment
from apps.common.clock import now
from apps.scheduling import pricing
from apps.scheduling.models import Usage
from apps.scheduling.selectors import PART_SUMS, SUM_COST, build_parts
from apps.training.public import FINAL_STATES, Task, UsageTotals, sum_task_usage

SECONDS_PER_HOUR = 3600.0
MAX_LISTED = 5


@dataclass(frozen=True, slots=True)
class TaskEstimate:
    """The most that a task may use, all attempts together: GPU-hours (None: no end is known) and cost (None: a price or
    the end is not known)."""

    gpus: int
    gpu_hours: float | None
    cost: float | None


@dataclass(frozen=True, slots=True)
class Spending:
    """`gpu_hours`, `cost`: used so far. `reserved_…`: what the unfinished tasks may still use. `unpriced`: something of
    it has no price. `running`: ids of the tasks that have not ended."""

    gpu_hours: float = 0.0
    cost: float = 0.0
    reserved_gpu_hours: float = 0.0
    reserved_cost: float = 0.0
    unpriced: bool = False
    running: Sequence[str] = field(default_factory=tuple)


def list_token_tasks(purse: Purse) -> QuerySet[AuditEvent, Any]:
    """Return the ids of the tasks that the token created, for `__in`."""
    return AuditEvent.objects.filter(token=purse.pk, action="task.create").values("target")


def estimate_task(task: Task) -> TaskEstimate:
    """Return the most that the task may use: its environments' GPUs, as the ledger counts them, for its longest run
    time, at the present prices."""
    nodes = task.spec["nodes"]
    known = DevEnvironment.objects.in_bulk([node["id"] for node in nodes])
    elastic = task.spec.get("elastic") or {}
    share = max(1.0, (elastic.get("max_nodes") or len(nodes)) / len(nodes))
    prices, moment = pricing.read_prices(), now()
    gpus, hourly = 0, 0.0
    priced = True
    for node in nodes:
        environment = known.get(node["id"])
        count = max(environment.gpu_count if environment else 0, node.get("gpu_count") or 0)
        price = environment and prices.find_price(environment.gpu_type, environment.zone_id, moment)
        gpus += count
        priced = priced and (price is not None or not count)
        hourly += count * float(price or 0)
    gpus = math.ceil(max(gpus, task.total_gpus) * share)
    if task.max_run_seconds is None:
        return TaskEstimate(gpus, None, None)
    hours = task.max_run_seconds / SECONDS_PER_HOUR
    return TaskEstimate(gpus, gpus * hours, hourly * share * hours if priced else None)


def measure_spending(purse: Purse, without: Collection[str] = ()) -> Spending:
    """Return what the purse's tasks have used and may still use, without some tasks."""
    created = list_token_tasks(purse)
    unfinished = list(
        Task.objects.filter(pk__in=created)
        .exclude(state__in=FINAL_STATES)
        .exclude(pk__in=list(without))
        .select_related("owner", "cluster")
        .order_by("pk")
    )
    used = sum_task_usage(unfinished)
    ended = Usage.objects.filter(task__in=created).exclude(task__in=[*used, *without]).order_by()
    booked = ended.aggregate(**PART_SUMS, cost=SUM_COST)
    hours, cost = build_parts(booked).total / SECONDS_PER_HOUR, booked["cost"] or 0.0
    reserved_hours, reserved_cost = 0.0, 0.0
    unpriced = ended.filter(gpus__gt=0, per_gpu_hour=None).exists()
    for task in unfinished:
        spent: UsageTotals = used[task.pk]
        most = estimate_task(task)
        hours += spent.gpu_hours
        cost += spent.cost or 0.0
        reserved_hours += math.inf if most.gpu_hours is None else max(0.0, most.gpu_hours - spent.gpu_hours)
        unpriced = unpriced or most.cost is None
        reserved_cost += max(0.0, (most.cost or 0.0) - (spent.cost or 0.0))
    return Spending(hours, cost, reserved_hours, reserved_cost, unpriced, [task.pk for task in unfinished])


def is_spent(purse: Purse, spending: Spending) -> bool:
    """Return True if nothing is left of the GPU-hours or the money."""
    return (purse.gpu_hours is not None and spending.gpu_hours >= purse.gpu_hours) or (
        purse.money is not None and spending.cost >= float(purse.money)
    )


def list_excesses(purse: Purse, task: Task, before: Spending, most: TaskEstimate) -> list[dict[str, Any]]:
    """Return in which ways a new task goes beyond the purse, as `{"code", "params"}`; `before`: without the task."""
    found: list[dict[str, Any]] = []

    def add(code: str, **params: Any) -> None:
        found.append({"code": code, "params": params})

    if most.gpu_hours is None and (purse.gpu_hours is not None or purse.money is not None):
        add("PURSE_NEEDS_MAX_RUN")
    elif purse.gpu_hours is not None and most.gpu_hours is not None:
        left = max(0.0, purse.gpu_hours - before.gpu_hours - before.reserved_gpu_hours)
        if most.gpu_hours > left + 1e-9:
            add("PURSE_GPU_HOURS", needed=round(most.gpu_hours, 2), left=round(left, 2))
    if purse.money is not None and most.gpu_hours is not None:
        rest = max(0.0, float(purse.money) - before.cost - before.reserved_cost)
        if most.cost is None or before.unpriced:
            add("PURSE_PRICE_UNKNOWN")
        elif most.cost > rest + 1e-9:
            add("PURSE_MONEY", needed=round(most.cost, 2), left=round(rest, 2), currency=settings.CURRENCY)
    if purse.preemptible_only and not task.preemptible:
        add("PURSE_PREEMPTIBLE")
    if purse.max_running is not None and len(before.running) >= purse.max_running:
        add("PURSE_RUNNING", limit=purse.max_running)
    if task.request.get("newEnvironments"):
        add("PURSE_NEW_ENVIRONMENTS")
    elif purse.environments is not None:
        spares = task.request.get("spareEnvironmentIds") or ()
        others = sorted({*(node["id"] for node in task.spec["nodes"]), *spares} - set(purse.environments))
        if others or task.select:
            add("PURSE_ENVIRONMENTS", environments=", ".join(others[:MAX_LISTED]) or "–")
    return found
