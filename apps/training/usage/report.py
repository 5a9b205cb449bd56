"""Reports what tasks held, what that time was spent on, and what it cost: from the ledger, and from what is held
now."""

import csv
import io
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
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
from apps.scheduling.selectors import PART_SUMS, SUM_COST, SUM_WAITED, build_parts, get_month_start
from apps.training.core import release
from apps.training.models import Task
from apps.training.states import FINAL_STATES
from apps.training.usage import mfu
from fermi.scheduler import ledger
from fermi.scheduler.ledger import PART_NAMES, TimeParts

SECONDS_PER_HOUR = 3600.0

GROUPS: Mapping[str, tuple[Any, Any]] = {
    "task": (F("task"), F("task_name")),
    "user": (F("owner"), F("owner")),
    "project": (F("project_id"), F("project__name")),
    "environment": (Coalesce("environment_id", Value("")), F("environment_name")),
    "month": (TruncMonth("since"), Value("")),
}
"""What a report can group by: the expressions for a row's key and its name."""


@dataclass(slots=True)
class UsageRow:
    """A row of a report. `parts` and `waited` are in GPU-seconds; `open`: GPU-hours held now, not yet divided into
    parts."""

    key: str
    name: str
    tasks: set[str] = field(default_factory=set)
    count: int = 0
    parts: TimeParts = field(default_factory=TimeParts)
    open: float = 0.0
    waited: float = 0.0
    cost: float = 0.0
    priced: bool = False


def report_usage(user: User, *, by: str, begins: datetime, ends: datetime, project: str = "") -> dict[str, Any]:
    """Return GPU-hours between two moments, grouped by `by`, as the API answers them. A row of the ledger that lies
    partly in between counts in part."""
    month = get_month_start(begins)  # no row lies in two months: indexes know where rows begin, not where they end
    rows = access.filter_visible(Usage.objects.filter(since__gte=month, since__lt=ends, until__gt=begins), user)
    if project:
        rows = rows.filter(project=project)
    sums: dict[str, UsageRow] = {}
    within = Q(since__gte=begins, until__lte=ends)
    for row in _sum_rows(rows.filter(within), by):
        one = _get_row(sums, row["key"], row["name"])
        one.count += row["tasks"]
        one.parts = one.parts.plus(build_parts(row))
        one.waited += row["all_waited"] or 0.0
        one.cost += row["cost"] or 0.0
        one.priced = one.priced or row["cost"] is not None
    key, name = GROUPS[by]
    for edge in rows.exclude(within).annotate(key=key, label=name):
        share = (min(edge.until, ends) - max(edge.since, begins)) / (edge.until - edge.since)
        one = _get_row(sums, edge.key, edge.label)
        one.tasks.add(edge.task)
        one.parts = one.parts.plus(_get_parts(edge).times(share * edge.gpus))
        one.waited += share * edge.gpus * edge.waited
        if edge.per_gpu_hour is not None:
            one.cost += share * edge.gpus * _get_parts(edge).total / SECONDS_PER_HOUR * float(edge.per_gpu_hour)
            one.priced = True
    _add_open_holds(user, sums, by, begins, ends, project)
    _count_once(rows.filter(within), by, sums)
    items = sorted((_serialize_row(one) for one in sums.values()), key=lambda item: (-item["gpuHours"], item["key"]))
    return {"items": items, "total": _sum_items(items), "currency": settings.CURRENCY, "from": begins, "to": ends}


def format_csv(report: Mapping[str, Any]) -> str:
    """Return the report as CSV: one line for each row, hours with three decimals."""
    out = io.StringIO()
    columns = [name for name in _CSV_COLUMNS if name != "tasks"]
    writer = csv.writer(out)
    writer.writerow([*columns, "currency"])
    for item in report["items"]:
        writer.writerow([*(_format_cell(item[name]) for name in columns), report["currency"]])
    return out.getvalue()


@dataclass(frozen=True, slots=True)
class UsageTotals:
    """What a task has used. `cost`: None without a price; `goodput`: share of the held GPU time that moved training
    forward, None where nothing was held."""

    gpu_hours: float
    cost: float | None
    goodput: float | None


def sum_task_usage(tasks: Sequence[Task]) -> dict[str, UsageTotals]:
    """Return what tasks have used, by id, with what those that are not final hold now. The tasks need their owner and
    cluster."""
    moment = now()
    rows: defaultdict[str, list[Usage]] = defaultdict(list)
    for row in Usage.objects.filter(task__in=[task.pk for task in tasks]):
        rows[row.task].append(row)
    for task in tasks:
        if task.state not in FINAL_STATES:
            rows[task.pk] += release.list_unbooked_usage(task, moment)
    return {task.pk: _sum_totals(rows[task.pk]) for task in tasks}


def _sum_totals(rows: Sequence[Usage]) -> UsageTotals:
    cost = [_compute_cost(row) for row in rows]
    return UsageTotals(
        gpu_hours=sum(row.gpus * _get_parts(row).total for row in rows) / SECONDS_PER_HOUR,
        cost=sum(one for one in cost if one is not None) if any(one is not None for one in cost) else None,
        goodput=ledger.compute_goodput(_weigh_parts(rows)),
    )


def _weigh_parts(rows: Sequence[Usage]) -> TimeParts:
    """Return what the rows' time was spent on, weighted by GPUs; rows without any GPU count the same."""
    weights = [row.gpus or 0 for row in rows] if any(row.gpus for row in rows) else [1] * len(rows)
    return ledger.sum_parts(_get_parts(row).times(weight) for row, weight in zip(rows, weights, strict=True))


def report_task_usage(task: Task) -> dict[str, Any]:
    """Return the usage of a task with what it holds now, as the API answers it."""
    moment = now()
    rows = list(Usage.objects.filter(task=task.pk).order_by("environment_name", "since"))
    rows += release.list_unbooked_usage(task, moment)
    weighed, totals = _weigh_parts(rows), _sum_totals(rows)
    held = _count_covered_seconds((row.since, row.until) for row in rows)
    parts = weighed.times(held / weighed.total) if weighed.total else TimeParts()
    lasted = clock_jumps.measure_elapsed(
        task.created_at, task.ended_at or moment, clock_jumps.list_gaps(task.created_at)
    )
    queued = max(lasted.total_seconds() - held, 0.0)
    return {
        "queuedSeconds": queued,
        "heldSeconds": held,
        **ledger.parts_to_dict(parts),
        "gpuHours": totals.gpu_hours,
        "cost": totals.cost,
        "currency": settings.CURRENCY,
        "goodput": totals.goodput,
        "ettr": ledger.compute_ettr(parts, queued),
        "modelFlops": mfu.compute_mfu(task),
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
                **ledger.parts_to_dict(_get_parts(row)),
                "cost": _compute_cost(row),
            }
            for row in rows
        ],
    }


def _sum_rows(rows: QuerySet[Usage], by: str) -> Iterable[dict[str, Any]]:
    key, name = GROUPS[by]
    grouped = rows.annotate(key=key, label=name).order_by().values("key", "label")
    for row in grouped.annotate(**PART_SUMS, all_waited=SUM_WAITED, cost=SUM_COST, tasks=Count("task", distinct=True)):
        yield {**row, "name": row["label"]}


def _add_open_holds(
    user: User, sums: dict[str, UsageRow], by: str, begins: datetime, ends: datetime, project: str
) -> None:
    """Add what is held now, which the ledger does not contain yet."""
    moment = now()
    known, left_out = pricing.read_prices(), clock_jumps.list_gaps(begins)
    held = [stretch for stretch in release.list_current_holds(moment) if stretch.since < ends]
    mine = access.filter_visible(Task.objects.filter(pk__in={stretch.task for stretch in held}), user)
    if project:
        mine = mine.filter(project=project)
    holders = {task.pk: task for task in mine.select_related("owner", "project")}
    for stretch in held:
        task, environment = holders.get(stretch.task), stretch.environment
        if task is None:
            continue
        for since, until in release.split_without_gaps(max(stretch.since, begins), min(moment, ends), left_out):
            named: Mapping[str, tuple[str, str]] = {
                "task": (task.pk, task.name),
                "user": (task.owner.username, task.owner.username),
                "project": (task.project_id, task.project.name),
                "environment": (environment.pk, environment.name),
                "month": (f"{since:%Y-%m}", ""),
            }
            one = _get_row(sums, *named[by])
            one.tasks.add(task.pk)
            hours = environment.gpu_count * (until - since).total_seconds() / SECONDS_PER_HOUR
            one.open += hours
            price = known.find_price(
                environment.gpu_type, environment.zone_id, max(stretch.since, get_month_start(since))
            )
            if price is not None:
                one.cost += hours * float(price)
                one.priced = True


def _count_once(rows: QuerySet[Usage], by: str, sums: dict[str, UsageRow]) -> None:
    """Remove tasks from the rows that SQL has counted already, so that a task counts once."""
    apart = {task for one in sums.values() for task in one.tasks}
    if not apart:
        return
    key, name = GROUPS[by]
    for found, label, task in (
        rows.filter(task__in=apart).annotate(key=key, label=name).values_list("key", "label", "task")
    ):
        _get_row(sums, found, label).tasks.discard(task)


def _get_row(sums: dict[str, UsageRow], key: Any, name: str) -> UsageRow:
    key = f"{key:%Y-%m}" if isinstance(key, datetime) else str(key)
    return sums.setdefault(key or name, UsageRow(key, name or key))


_CSV_COLUMNS = ("key", "name", "tasks", "gpuHours", "openGpuHours", *PART_NAMES, "cost", "goodput", "waited", "ettr")


_SUMMED_COLUMNS = ("gpuHours", "openGpuHours", *PART_NAMES, "waited")


def _serialize_row(row: UsageRow) -> dict[str, Any]:
    booked = row.parts.total / SECONDS_PER_HOUR
    return {
        "key": row.key,
        "name": row.name,
        "tasks": row.count + len(row.tasks),
        "gpuHours": booked + row.open,
        "openGpuHours": row.open,
        **{part: seconds / SECONDS_PER_HOUR for part, seconds in ledger.parts_to_dict(row.parts).items()},
        "cost": row.cost if row.priced else None,
        "goodput": ledger.compute_goodput(row.parts),
        "waited": row.waited / SECONDS_PER_HOUR,
        "ettr": ledger.compute_ettr(row.parts, row.waited),
    }


def _sum_items(items: list[dict[str, Any]]) -> dict[str, Any]:
    sums: defaultdict[str, float] = defaultdict(float)
    for item in items:
        for name in _SUMMED_COLUMNS:
            sums[name] += item[name]
    costs = [item["cost"] for item in items if item["cost"] is not None]
    booked = sums["gpuHours"] - sums["openGpuHours"]
    return {
        **{name: sums[name] for name in _SUMMED_COLUMNS},
        "cost": sum(costs) if costs else None,
        "goodput": sums["training"] / booked if booked > 0 else None,
        "ettr": sums["training"] / (booked + sums["waited"]) if booked > 0 else None,
    }


def _get_parts(row: Usage) -> TimeParts:
    return TimeParts(**{part: getattr(row, part) for part in PART_NAMES})


def _compute_cost(row: Usage) -> float | None:
    if row.per_gpu_hour is None:
        return None
    return row.gpus * _get_parts(row).total / SECONDS_PER_HOUR * float(row.per_gpu_hour)


def _count_covered_seconds(intervals: Iterable[tuple[datetime, datetime]]) -> float:
    """Return the seconds that lie in any of the intervals."""
    total, reached = 0.0, None
    for since, until in sorted(intervals):
        begins = since if reached is None else max(since, reached)
        total += max((until - begins).total_seconds(), 0.0)
        reached = until if reached is None else max(until, reached)
    return total


def _format_cell(value: Any) -> Any:
    """Return the cell's value; text that a spreadsheet would evaluate gets a leading apostrophe."""
    if isinstance(value, float):
        return f"{value:.3f}"
    return f"'{value}" if isinstance(value, str) and value.startswith(("=", "+", "-", "@", "\t", "\r")) else value
