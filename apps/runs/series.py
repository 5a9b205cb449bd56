"""Curves of several runs on one axis, with few points each, and their bands by group."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from apps.accounts import access
from apps.accounts.models import User
from apps.common.errors import ApiError
from apps.common.texts import render_text
from apps.runs.axes import ABSENCES, Scale, find_scales
from apps.runs.machines import NAMES, read_machine_curves
from apps.training.public import Curve, CurveReader, Task, TaskParameter
from fermi.metrics import downsampling
from fermi.metrics.downsampling import Buckets, Cells, Floats

MAX_TASKS, MAX_METRICS = 50, 20
MIN_POINTS, DEFAULT_POINTS, MAX_POINTS = 2, 500, 2000
MAX_ALL_POINTS = 30_000
"""Points of all curves of an answer together: of more curves each one has fewer."""
MIN_SHARE = 20
DIGITS_OF_PLACES = 12


def find_tasks(user: User, task_ids: Sequence[str]) -> list[Task]:
    """Return the trainings in the given order, each once. Raises ApiError 404 if the user may not see one of them."""
    wanted = list(dict.fromkeys(task_ids))
    rows = access.filter_visible(Task.trainings.defer("request", "summary", "warnings"), user)
    found = {task.pk: task for task in rows.filter(pk__in=wanted).select_related("cluster")}
    if len(found) < len(wanted):
        raise ApiError(404, "NOT_FOUND", "task")
    return [found[one] for one in wanted]


def read_series(tasks: Sequence[Task], query: Mapping[str, Any]) -> dict[str, Any]:
    """Return the answer of `GET /runs/series`. `query`: as `api.series.SeriesQuery` parses it."""
    metrics = list(dict.fromkeys(query["metric"]))
    points = min(query["points"], max(MIN_SHARE, MAX_ALL_POINTS // (len(tasks) * len(metrics))))
    low, high = query.get("from"), query.get("to")
    reader = CurveReader(tasks)
    scales = find_scales(query["axis"], tasks, reader)
    spans = {task: scale.invert(low, high) for task, scale in scales.items()}
    machine_names = [name for name in metrics if name in NAMES]
    own_names = [name for name in metrics if name not in NAMES]
    curves = [curve for curve in reader.read(own_names, points, spans) if curve.task_id in scales]
    curves += read_machine_curves(tasks, machine_names, points, scales, reader)
    places = [scales[curve.task_id].place_cells(curve.cells) for curve in curves]
    known = [one for one in places if len(one)]
    low = min((float(one.min()) for one in known), default=low) if low is None else low
    high = max((float(one.max()) for one in known), default=high) if high is None else high
    shown = [_clip(one, x, low, high) for one, x in zip(curves, places, strict=True)]
    items, drawn = [], list[tuple[Curve, Buckets]]()
    for curve, (x, cells) in zip(curves, shown, strict=True):
        buckets = downsampling.downsample_cells(x, cells, low or 0.0, high or 0.0, points)
        drawn.append((curve, buckets))
        items.append(_serialize_curve(curve, buckets, scales[curve.task_id], query["smooth"]))
    return {
        "axis": query["axis"],
        "from": low,
        "to": high,
        "points": points,
        "complete": reader.is_complete,
        "series": items,
        "bands": _build_bands(tasks, drawn, query.get("groupBy", ""), low or 0.0, high or 0.0, points),
        "absent": _list_absences(tasks, metrics, curves, scales, query["axis"]),
    }


def _clip(curve: Curve, x: Floats, low: float | None, high: float | None) -> tuple[Floats, Cells]:
    """Return the cells that lie within the answered part of the axis, with their places."""
    inside = np.ones(len(x), bool)
    if low is not None:
        inside &= x >= low
    if high is not None:
        inside &= x <= high
    return (x, curve.cells) if inside.all() else (x[inside], curve.cells.select(inside))


def _serialize_curve(curve: Curve, buckets: Buckets, scale: Scale, smooth: float) -> dict[str, Any]:
    is_exact = bool(np.all(buckets.counts == 1))
    return {
        "taskId": curve.task_id,
        "metric": curve.name,
        "source": curve.source,
        "x": _list_places(buckets.x),
        "y": buckets.means.tolist(),
        "low": None if is_exact else buckets.lows.tolist(),
        "high": None if is_exact else buckets.highs.tolist(),
        "count": int(buckets.counts.sum()),
        "smoothed": _smooth(buckets.means, smooth) if smooth else None,
        "last": curve.last,
        "lastStep": curve.last_step,
        "restarts": [] if scale.by_time else _list_places(scale.place(np.array(curve.restarts, np.float64))),
        "notFinite": curve.not_finite,
        "complete": curve.is_complete,
    }


def _list_places(places: Floats) -> list[float]:
    return downsampling.round_digits(places, DIGITS_OF_PLACES).tolist()


def _smooth(values: Floats, weight: float) -> list[float]:
    smoothed = downsampling.smooth_values(values, weight)
    return downsampling.round_digits(smoothed, downsampling.MEAN_DIGITS).tolist()


def _build_bands(
    tasks: Sequence[Task], drawn: Sequence[tuple[Curve, Buckets]], group_by: str, low: float, high: float, points: int
) -> list[dict[str, Any]]:
    """Return one band for each metric and group, the groups in the order of their first tasks."""
    if not group_by:
        return []
    groups = _group_tasks(tasks, group_by)
    found: dict[tuple[str, str], list[tuple[Curve, Buckets]]] = {}
    for curve, buckets in sorted(drawn, key=lambda one: list(groups).index(one[0].task_id)):
        found.setdefault((curve.name, groups[curve.task_id]), []).append((curve, buckets))
    answer = []
    for (metric, group), mine in found.items():
        band = downsampling.build_band([(buckets.x, buckets.means) for _, buckets in mine], low, high, points)
        answer.append({
            "metric": metric,
            "group": group,
            "taskIds": [curve.task_id for curve, _ in mine],
            "x": _list_places(band.x),
            "mean": band.means.tolist(),
            "low": band.lows.tolist(),
            "high": band.highs.tolist(),
            "lowQuartile": band.low_quartiles.tolist(),
            "highQuartile": band.high_quartiles.tolist(),
            "count": band.counts.tolist(),
        })  # fmt: skip
    return answer


def _group_tasks(tasks: Sequence[Task], name: str) -> dict[str, str]:
    """Return the value of a parameter of each task; empty where it has none."""
    rows = TaskParameter.objects.filter(task__in=[task.pk for task in tasks], name=name)
    values = dict(rows.values_list("task_id", "value"))
    return {task.pk: values.get(task.pk, "") for task in tasks}


def _list_absences(
    tasks: Sequence[Task], metrics: Sequence[str], curves: Sequence[Curve], scales: Mapping[str, Scale], axis: str
) -> list[dict[str, Any]]:
    """Return what is not in the answer, and why."""
    known = {(curve.task_id, curve.name) for curve in curves}
    found = []
    for task in tasks:
        if task.pk not in scales:
            found.append(_describe_absence(task, "", ABSENCES[axis], {}))
            continue
        for metric in metrics:
            if (task.pk, metric) not in known:
                code = "SERIES_NOT_MEASURED" if metric in NAMES else "SERIES_NOT_REPORTED"
                found.append(_describe_absence(task, metric, code, {"metric": metric}))
    return found


def _describe_absence(task: Task, metric: str, code: str, params: Mapping[str, Any]) -> dict[str, Any]:
    message, hint = render_text(code, {"name": task.name, **params})
    return {"taskId": task.pk, "metric": metric, "code": code, "message": message, "hint": hint}
