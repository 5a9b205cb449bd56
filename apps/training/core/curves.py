"""Reads the curve of one metric of a task, as the leading rank reported it."""

import math
from typing import NamedTuple

from apps.training.core import log_patterns
from apps.training.models import MetricPoint, MetricSummary

MAX_POINTS = 5_000
"""Points that one call reads."""


class CurvePart(NamedTuple):
    """Points as (step, value), in the order in which they were stored. `last`: id of the last point that was read,
    whatever it held; `more`: there may be further ones."""

    points: list[tuple[int, float]]
    last: int
    more: bool


def read_curve(task_id: str, metric: str, after: int = 0, limit: int = MAX_POINTS) -> CurvePart:
    """Return the finite values of a metric behind the point `after`. Users' changes of text patterns are applied."""
    columns = ("id", "step", "values", "pattern")
    rows = MetricPoint.objects.filter(task=task_id, rank=0, pk__gt=after).order_by("pk").values(*columns)[:limit]
    found = list(rows)
    last = found[-1]["id"] if found else after
    points = []
    for point in log_patterns.apply_patterns(task_id, found):
        value = point["values"].get(metric)
        if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
            points.append((point["step"], float(value)))
    return CurvePart(points, last, len(found) == limit)


class CurveSummary(NamedTuple):
    """The last, lowest and highest value of a curve, each with its step."""

    last: tuple[float, int]
    low: tuple[float, int]
    high: tuple[float, int]


def find_summary(task_id: str, metric: str) -> CurveSummary | None:
    """Return what the curve of a metric comes to, also of points that were thinned out; None where that is not
    stored."""
    row = MetricSummary.objects.filter(task=task_id, name=metric).first()
    if row is None:
        return None
    return CurveSummary((row.last, row.last_step), (row.low, row.low_step), (row.high, row.high_step))
