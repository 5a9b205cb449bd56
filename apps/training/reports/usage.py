"""Reports what tasks held, what that time was spent on, and what it cost: from the ledger, and from what is held
now."""

import csv
import io
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from django.conf import settings
from django.db.models import Count, F, Q, QuerySet, Value
from django.db.models.functions import Coalesce, TruncMonth

from apps.accounts import access
from apps.accounts.models import User
from apps.common import clock_jumps
from apps.common.clock import now
from apps.scheduling import pricing
from apps.scheduling.models import Usage
from apps.scheduling.selectors import COST, PART_SUMS, WAITED, month_of, parts_of
from apps.training.core import releasing
from apps.training.models import Task
from apps.training.reports import mfu
from fermi.scheduler import ledger
from fermi.scheduler.ledger import PARTS, Parts

HOUR = 3600.0

GROUPS: Mapping[str, tuple[Any, Any]] = {
    "task": (F("task"), F("task_name")),
    "user": (F("owner"), F("owner")),
    "project": (F("project_id"), F("project__name")),
    "environment": (Coalesce("environment_id", Value("")), F("environment_name")),
    "month": (TruncMonth("since"), Value("")),
}
"""What a report can group by: the expressions for a row's key and its name."""


@dataclass(slots=True)
class Tally:
    """A row of a report. `parts` and `waited` are in GPU-seconds; `open`: GPU-hours held now, not yet divided into
    parts."""

    key: str
    name: str
    tasks: set[str] = field(default_factory=set)
    count: int = 0
    parts: Parts = field(default_factory=Parts)
    open: float = 0.0
    waited: float = 0.0
    cost: float = 0.0
    priced: bool = False


def report(user: User, *, by: str, begins: datetime, ends: datetime, project: str = "") -> dict[str, Any]:
    """Return GPU-hours between two moments, grouped by `by`, as the API answers them. A row of the ledger that lies
    partly in between counts in part."""
    month = month_of(begins)  # no row lies in two months: indexes know where rows begin, not where they end
    rows = access.visible(Usage.objects.filter(since__gte=month, since__lt=ends, until__gt=begins), user)
    if project:
        rows = rows.filter(project=project)
    sums: dict[str, Tally] = {}
    within = Q(since__gte=begins, until__lte=ends)
    for row in _added(rows.filter(within), by):
        one = _sum(sums, row["key"], row["name"])
        one.count += row["tasks"]
        one.parts = one.parts.plus(parts_of(row))
        one.waited += row["all_waited"] or 0.0
        one.cost += row["cost"] or 0.0
        one.priced = one.priced or row["cost"] is not None
    key, name = GROUPS[by]
    for edge in rows.exclude(within).annotate(key=key, label=name):
        share = (min(edge.until, ends) - max(edge.since, begins)) / (edge.until - edge.since)
        one = _sum(sums, edge.key, edge.label)
        one.tasks.add(edge.task)
        one.parts = one.parts.plus(_parts(edge).times(share * edge.gpus))
        one.waited += share * edge.gpus * edge.waited
        if edge.per_gpu_hour is not None:
            one.cost += share * edge.gpus * _parts(edge).held / HOUR * float(edge.per_gpu_hour)
            one.priced = True
    _open(user, sums, by, begins, ends, project)
    _count_once(rows.filter(within), by, sums)
    items = sorted((_shown(one) for one in sums.values()), key=lambda item: (-item["gpuHours"], item["key"]))
    return {"items": items, "total": _total(items), "currency": settings.CURRENCY, "from": begins, "to": ends}


def as_csv(told: Mapping[str, Any]) -> str:
    """Return the report as CSV: one line for each row, hours with three decimals."""
    out = io.StringIO()
    columns = [name for name in _COLUMNS if name != "tasks"]
    writer = csv.writer(out)
    writer.writerow([*columns, "currency"])
    for item in told["items"]:
        writer.writerow([*(_cell(item[name]) for name in columns), told["currency"]])
    return out.getvalue()


def of_task(task: Task) -> dict[str, Any]:
    """Return the usage of a task with what it holds now, as the API answers it."""
    moment = now()
    rows = list(Usage.objects.filter(task=task.pk).order_by("environment_name", "since"))
    rows += releasing.of_task(task, moment)
    weights = [row.gpus or 0 for row in rows] if any(row.gpus for row in rows) else [1] * len(rows)
    weighed = ledger.total(_parts(row).times(weight) for row, weight in zip(rows, weights, strict=True))
    held = _covered((row.since, row.until) for row in rows)
    parts = weighed.times(held / weighed.held) if weighed.held else Parts()
    cost = [_cost(row) for row in rows]
    lasted = clock_jumps.passed(task.created_at, task.ended_at or moment, clock_jumps.gaps(task.created_at))
    queued = max(lasted.total_seconds() - held, 0.0)
    return {
        "queuedSeconds": queued,
        "heldSeconds": held,
        **ledger.names(parts),
        "gpuHours": sum(row.gpus * _parts(row).held for row in rows) / HOUR,
        "cost": sum(one for one in cost if one is not None) if any(one is not None for one in cost) else None,
        "currency": settings.CURRENCY,
        "goodput": ledger.goodput(weighed),
        "ettr": ledger.ettr(parts, queued),
        "modelFlops": mfu.of_task(task),
        "nodes": [
            {
                "environmentId": row.environment_id,
                "name": row.environment_name,
                "zone": row.zone,
                "gpuType": row.gpu_type,
                "gpus": row.gpus,
                "since": row.since,
                "until": row.until,
                "open": row.pk is None,
                **ledger.names(_parts(row)),
                "cost": _cost(row),
            }
            for row in rows
        ],
    }


def _added(rows: QuerySet[Usage], by: str) -> Iterable[dict[str, Any]]:
    key, name = GROUPS[by]
    grouped = rows.annotate(key=key, label=name).order_by().values("key", "label")
    for row in grouped.annotate(**PART_SUMS, all_waited=WAITED, cost=COST, tasks=Count("task", distinct=True)):
        yield {**row, "name": row["label"]}


def _open(user: User, sums: dict[str, Tally], by: str, begins: datetime, ends: datetime, project: str) -> None:
    """Add what is held now, which the ledger does not contain yet."""
    moment = now()
    known, left_out = pricing.prices(), clock_jumps.gaps(begins)
    held = [stretch for stretch in releasing.held_now(moment) if stretch.since < ends]
    mine = access.visible(Task.objects.filter(pk__in={stretch.task for stretch in held}), user)
    if project:
        mine = mine.filter(project=project)
    holders = {task.pk: task for task in mine.select_related("owner", "project")}
    for stretch in held:
        task, environment = holders.get(stretch.task), stretch.environment
        if task is None:
            continue
        for since, until in releasing.pieces(max(stretch.since, begins), min(moment, ends), left_out):
            named: Mapping[str, tuple[str, str]] = {
                "task": (task.pk, task.name),
                "user": (task.owner.username, task.owner.username),
                "project": (task.project_id, task.project.name),
                "environment": (environment.pk, environment.name),
                "month": (f"{since:%Y-%m}", ""),
            }
            one = _sum(sums, *named[by])
            one.tasks.add(task.pk)
            hours = environment.gpu_count * (until - since).total_seconds() / HOUR
            one.open += hours
            price = known.of(environment.gpu_type, environment.zone_id, max(stretch.since, month_of(since)))
            if price is not None:
                one.cost += hours * float(price)
                one.priced = True


def _count_once(rows: QuerySet[Usage], by: str, sums: dict[str, Tally]) -> None:
    """Remove tasks from the rows that SQL has counted already, so that a task counts once."""
    apart = {task for one in sums.values() for task in one.tasks}
    if not apart:
        return
    key, name = GROUPS[by]
    for found, label, task in (
        rows.filter(task__in=apart).annotate(key=key, label=name).values_list("key", "label", "task")
    ):
        _sum(sums, found, label).tasks.discard(task)


def _sum(sums: dict[str, Tally], key: Any, name: str) -> Tally:
    key = f"{key:%Y-%m}" if isinstance(key, datetime) else str(key)
    return sums.setdefault(key or name, Tally(key, name or key))


_COLUMNS = ("key", "name", "tasks", "gpuHours", "openGpuHours", *PARTS, "cost", "goodput", "waited", "ettr")


_ADDED = ("gpuHours", "openGpuHours", *PARTS, "waited")


def _shown(one: Tally) -> dict[str, Any]:
    booked = one.parts.held / HOUR
    return {
        "key": one.key,
        "name": one.name,
        "tasks": one.count + len(one.tasks),
        "gpuHours": booked + one.open,
        "openGpuHours": one.open,
        **{part: seconds / HOUR for part, seconds in ledger.names(one.parts).items()},
        "cost": one.cost if one.priced else None,
        "goodput": ledger.goodput(one.parts),
        "waited": one.waited / HOUR,
        "ettr": ledger.ettr(one.parts, one.waited),
    }


def _total(items: list[dict[str, Any]]) -> dict[str, Any]:
    sums: defaultdict[str, float] = defaultdict(float)
    for item in items:
        for name in _ADDED:
            sums[name] += item[name]
    costs = [item["cost"] for item in items if item["cost"] is not None]
    booked = sums["gpuHours"] - sums["openGpuHours"]
    return {
        **{name: sums[name] for name in _ADDED},
        "cost": sum(costs) if costs else None,
        "goodput": sums["training"] / booked if booked > 0 else None,
        "ettr": sums["training"] / (booked + sums["waited"]) if booked > 0 else None,
    }


def _parts(row: Usage) -> Parts:
    return Parts(**{part: getattr(row, part) for part in PARTS})


def _cost(row: Usage) -> float | None:
    if row.per_gpu_hour is None:
        return None
    return row.gpus * _parts(row).held / HOUR * float(row.per_gpu_hour)


def _covered(stretches: Iterable[tuple[datetime, datetime]]) -> float:
    """Return the seconds that lie in any of the intervals."""
    total, reached = 0.0, None
    for since, until in sorted(stretches):
        begins = since if reached is None else max(since, reached)
        total += max((until - begins).total_seconds(), 0.0)
        reached = until if reached is None else max(until, reached)
    return total


def _cell(value: Any) -> Any:
    """Return the cell's value; text that a spreadsheet would evaluate gets a leading apostrophe."""
    if isinstance(value, float):
        return f"{value:.3f}"
    return f"'{value}" if isinstance(value, str) and value.startswith(("=", "+", "-", "@", "\t", "\r")) else value
