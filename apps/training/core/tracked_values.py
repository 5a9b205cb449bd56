"""Stores values that a task's processes logged to the platform itself, where no record of them comes in a log."""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime

from apps.common.clock import now
from apps.training.core import wakeups
from apps.training.core.parameters import store_parameters
from apps.training.models import MetricPoint, MetricSummary
from fermi.metrics.parameters import MAX_NAME_LENGTH
from fermi.metrics.summaries import MAX_SUMMARIES

MAX_POINTS = 10_000
"""Of an attempt; later ones change only what the curve comes to."""
MAX_STEP = 1 << 62


def record_tracked_parameters(task_id: str, found: Mapping[str, str], source: str) -> None:
    """Store parameters of a task, as far as no other source has reported them."""
    store_parameters(
        task_id, {name[:MAX_NAME_LENGTH]: value[:1000] for name, value in found.items()}, source, replaces=False
    )


def record_tracked_values(
    task_id: str, attempt: int, found: Iterable[tuple[str, float, int, int]], source: str
) -> None:
    """Store values of curves, each with its name, number, step and unix milliseconds. Call it in a transaction that
    has a lock, so that no two processes change the same curve."""
    points: dict[tuple[int, int], MetricPoint] = {}
    summaries = {row.name: row for row in MetricSummary.objects.filter(task=task_id)}
    changed: dict[str, MetricSummary] = {}
    for name, value, step, milliseconds in found:
        if abs(step) > MAX_STEP:
            continue
        shown = name[:MAX_NAME_LENGTH]
        point = points.get((step, milliseconds))
        if point is None:
            point = points[step, milliseconds] = MetricPoint(
                task_id=task_id, attempt=attempt, rank=0, step=step, at=_parse_moment(milliseconds), values={},
                source=source,
            )  # fmt: skip
        point.values[shown] = value
        if shown not in summaries and len(summaries) >= MAX_SUMMARIES:
            continue
        summaries[shown] = changed[shown] = _add_value(summaries.get(shown), task_id, shown, value, step)
    if not points:
        return
    stored = MetricPoint.objects.filter(task=task_id, attempt=attempt, source=source)[:MAX_POINTS].count()
    MetricPoint.objects.bulk_create(list(points.values())[: MAX_POINTS - stored])
    numbers = ["count", "last", "last_step", "low", "low_step", "high", "high_step"]
    MetricSummary.objects.bulk_create(
        changed.values(), update_conflicts=True, unique_fields=["task", "name"], update_fields=numbers
    )
    wakeups.publish_change(task_id, "metric")


def _parse_moment(milliseconds: int) -> datetime:
    """Return the moment; the present for one that is impossible."""
    if not 0 < milliseconds < (now().timestamp() + 86400) * 1000:
        return now()
    return datetime.fromtimestamp(milliseconds / 1000, UTC)


def _add_value(row: MetricSummary | None, task_id: str, name: str, value: float, step: int) -> MetricSummary:
    if row is None:
        return MetricSummary(
            task_id=task_id, name=name, count=1, last=value, last_step=step, low=value, low_step=step, high=value,
            high_step=step,
        )  # fmt: skip
    row.pk = None  # written by its task and name
    row.count += 1
    row.last, row.last_step = value, step
    if value < row.low:
        row.low, row.low_step = value, step
    if value > row.high:
        row.high, row.high_step = value, step
    return row
