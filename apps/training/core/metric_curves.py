"""Reads the curves of many tasks at once, each as one line over all attempts and as no more cells than are shown.

What one curve is, is the same on a task's page (`frontend/src/pages/task/series.ts`):

* Of sources that report a name in one attempt, and that differ, the best one counts; a source that reports it in other
  attempts belongs to the same curve. Of the ranks the lowest one counts.
* Steps that a later attempt did again count once, as the newest attempt has them: from the first step of a later
  attempt on, an earlier one's points are left out.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from apps.training.core.log_patterns import load_changes
from apps.training.core.metric_blocks import (
    CELL_POINTS,
    MAX_IDS,
    Points,
    SeriesKey,
    sort_points,
    unpack_cells,
    unpack_points,
    update_blocks,
)
from apps.training.models import MetricBlock, Task
from apps.training.states import FINAL_STATES
from fermi.metrics.downsampling import Cells, Floats, fold_points, join_cells
from fermi.metrics.points import get_priority

MAX_NEW_ROWS = 200_000
"""Rows that one request copies into blocks, of all its tasks; the next one goes on."""
CELLS_PER_POINT = 2
"""A curve is read as cells where it has so many for each point that is shown: edges blur by half a point."""


class Span(NamedTuple):
    """The part of a curve that is read, by step or by unix seconds, with both ends; None: no end."""

    low: float | None
    high: float | None
    by_time: bool = False


@dataclass(frozen=True, slots=True)
class Curve:
    """The curve of one name of one task. `cells`: within the span that was read. `last`: the newest finite value of the
    whole curve, with its step. `restarts`: first steps of attempts after the first. `is_complete`: all points that are
    stored are in it; otherwise the next reading has more."""

    task_id: str
    name: str
    source: str
    cells: Cells
    last: float | None
    last_step: int | None
    restarts: list[int]
    not_finite: int
    is_complete: bool


@dataclass(frozen=True, slots=True)
class _Segment:
    """A block, or points that are in none (`points`)."""

    key: SeriesKey
    number: int
    count: int
    not_finite: int
    first_step: int
    last_step: int
    first_time: float
    last_time: float
    last: float | None
    last_value_step: int | None
    pk: int = 0
    points: Points | None = None


class _Plan(NamedTuple):
    """What of a segment is read: steps below `limit`, and all of its points or (`coarse`) its cells."""

    segment: _Segment
    limit: float
    coarse: bool


_COLUMNS = (
    "number", "count", "not_finite", "first_step", "last_step", "first_time", "last_time", "last", "last_value_step",
    "pk",
)  # fmt: skip


class CurveReader:
    """Reads curves of some tasks. New points are copied into blocks first, at most MAX_NEW_ROWS in one reader."""

    def __init__(self, tasks: Iterable[Task]) -> None:
        """Copy what is new. Without a transaction around it."""
        ended = {task.pk: task.state in FINAL_STATES for task in tasks}
        found = update_blocks(ended, max_rows=MAX_NEW_ROWS) if ended else {}
        self._tasks = list(ended)
        self._rest = {task: one.rest for task, one in found.items()}
        self._incomplete = {task for task, one in found.items() if not one.is_complete}
        self._changes = load_changes(self._tasks)

    @property
    def is_complete(self) -> bool:
        """Return whether all stored points are read; otherwise another reader reads more."""
        return not self._incomplete

    def list_names(self) -> dict[str, set[str]]:
        """Return the names of the curves of each task."""
        found: dict[str, set[str]] = {task: set() for task in self._tasks}
        rows = MetricBlock.objects.filter(task__in=self._tasks).order_by()
        stored = rows.values_list("task_id", "pattern", "name").distinct()
        unstored = ((task, key.pattern, key.name) for task, rest in self._rest.items() for key in rest)
        for task, pattern, name in [*stored, *unstored]:
            if shown := self._rename(task, pattern, name):
                found[task].add(shown)
        return found

    def read(self, names: Sequence[str], points: int, spans: Mapping[str, Span] | None = None) -> list[Curve]:
        """Return the curves that there are, by task and name in the given order. `points`: how many are shown of each;
        more cells than that are read. `spans`: by task."""
        spans = spans or {}
        curves: list[tuple[str, str, list[_Plan], list[_Segment], Span | None]] = []
        segments = self._load_segments(names)
        for task in self._tasks:
            for name in names:
                if mine := _choose_segments(segments.get((task, name), [])):
                    span = spans.get(task)
                    curves.append((task, name, _plan(mine, points, span), mine, span))
        plans = [plan for _, _, planned, _, _ in curves for plan in planned]
        cells = _load_blobs("cells", [one.segment.pk for one in plans if one.segment.pk and one.coarse])
        data = _load_blobs("data", [one.segment.pk for one in plans if one.segment.pk and not one.coarse])
        return [
            _build_curve(task, name, mine, _join(planned, cells, data, span), task not in self._incomplete)
            for task, name, planned, mine, span in curves
        ]

    def _rename(self, task: str, pattern: str, name: str) -> str:
        """Return the shown name; empty for what users have left out."""
        names = self._changes.get(task, {}).get(pattern, {}) if pattern else {}
        return "" if names is None else names.get(name, name)

    def _load_segments(self, names: Sequence[str]) -> dict[tuple[str, str], list[_Segment]]:
        """Return the segments by task and shown name."""
        changed = (names for patterns in self._changes.values() for names in patterns.values())
        printed = {name for one in changed for name in one or ()}
        rows = MetricBlock.objects.filter(task__in=self._tasks, name__in={*names, *printed}).order_by("number")
        found: dict[tuple[str, str], list[_Segment]] = {}
        for task, *columns in rows.values_list("task_id", *SeriesKey._fields, *_COLUMNS):
            key = SeriesKey(*columns[: len(SeriesKey._fields)])
            segment = _Segment(key, *columns[len(SeriesKey._fields) :])
            found.setdefault((task, self._rename(task, key.pattern, key.name)), []).append(segment)
        for task, rest in self._rest.items():
            for key, points in rest.items():
                shown = self._rename(task, key.pattern, key.name)
                if shown in names and len(points):
                    found.setdefault((task, shown), []).append(_make_segment(key, points))
        return found


def _make_segment(key: SeriesKey, points: Points) -> _Segment:
    known = np.flatnonzero(np.isfinite(points.values))
    return _Segment(
        key, 0, len(points), len(points) - len(known), int(points.steps[0]), int(points.steps[-1]),
        float(points.times.min()), float(points.times.max()),
        float(points.values[known[-1]]) if len(known) else None,
        int(points.steps[known[-1]]) if len(known) else None,
        points=points,
    )  # fmt: skip


def _choose_segments(segments: Sequence[_Segment]) -> list[_Segment]:
    """Return the segments of the best sources, and of the lowest rank among them, by attempt and step."""
    attempts: dict[str, set[int]] = {}
    for one in segments:
        attempts.setdefault(one.key.source, set()).add(one.key.attempt)
    sources, covered = set[str](), set[int]()
    for source in sorted(attempts, key=get_priority, reverse=True):
        if not attempts[source] & covered:
            sources.add(source)
            covered |= attempts[source]
    mine = [one for one in segments if one.key.source in sources]
    rank = min((one.key.rank for one in mine), default=0)
    return sorted(
        (one for one in mine if one.key.rank == rank), key=lambda one: (one.key.attempt, one.first_step, one.number)
    )


def _find_limits(segments: Iterable[_Segment]) -> dict[int, float]:
    """Return by attempt the step from which on a later one counts."""
    first: dict[int, int] = {}
    for one in segments:
        first[one.key.attempt] = min(one.first_step, first.get(one.key.attempt, one.first_step))
    limits, limit = dict[int, float](), float("inf")
    for attempt in sorted(first, reverse=True):
        limits[attempt] = limit
        limit = min(limit, first[attempt])
    return limits


def _plan(segments: Sequence[_Segment], points: int, span: Span | None) -> list[_Plan]:
    """Return what is read of the segments: cells where these are many more than points, and only of blocks that lie
    within the span and below the limit, and that overlap no other one."""
    limits = _find_limits(segments)
    mine = [one for one in segments if one.first_step < limits[one.key.attempt] and _overlaps(one, span)]
    is_coarse = sum(one.count for one in mine) >= CELL_POINTS * CELLS_PER_POINT * points
    tangled = set[int]()
    blocks = [one for one in mine if one.points is None]
    for before, after in pairwise(blocks):
        if before.key.attempt == after.key.attempt and after.first_step <= before.last_step:
            tangled.add(after.key.attempt)
    return [
        _Plan(
            one,
            limit := limits[one.key.attempt],
            is_coarse
            and one.points is None
            and one.key.attempt not in tangled
            and one.last_step < limit
            and _is_within(one, span),
        )
        for one in mine
    ]


def _get_ends(segment: _Segment, span: Span) -> tuple[float, float]:
    if span.by_time:
        return segment.first_time, segment.last_time
    return segment.first_step, segment.last_step


def _overlaps(segment: _Segment, span: Span | None) -> bool:
    if span is None:
        return True
    low, high = _get_ends(segment, span)
    return (span.low is None or high >= span.low) and (span.high is None or low <= span.high)


def _is_within(segment: _Segment, span: Span | None) -> bool:
    if span is None:
        return True
    low, high = _get_ends(segment, span)
    return (span.low is None or low >= span.low) and (span.high is None or high <= span.high)


def _load_blobs(column: str, keys: Sequence[int]) -> dict[int, bytes | memoryview]:
    found: dict[int, bytes | memoryview] = {}
    for at in range(0, len(keys), MAX_IDS):
        found.update(MetricBlock.objects.filter(pk__in=keys[at : at + MAX_IDS]).values_list("pk", column))
    return found


def _join(plans: Sequence[_Plan], cells: Mapping[int, Any], data: Mapping[int, Any], span: Span | None) -> Cells:
    """Return the cells of a curve. A block that was thrown away meanwhile has none."""
    coarse = [unpack_cells(cells[one.segment.pk]) for one in plans if one.coarse and one.segment.pk in cells]
    fine = []
    for segment, limit, is_coarse in plans:
        points = segment.points
        if points is None and not is_coarse and segment.pk in data:
            points = unpack_points(data[segment.pk])
        if points is not None:
            fine.append(points.select(_find_wanted(points, limit, span)))
    if fine:
        points = sort_points(
            Points(*(_concatenate([getattr(one, name) for one in fine]) for name in ("steps", "times", "values")))
        )
        coarse.append(fold_points(points.steps, points.times, points.values))
    found = join_cells(coarse)
    if np.any(found.first_steps[1:] < found.first_steps[:-1]):
        found = found.select(np.argsort(found.first_steps, kind="stable"))
    return found


def _find_wanted(points: Points, limit: float, span: Span | None) -> Any:
    """Return a mask of the points below the limit and within the span."""
    wanted = points.steps < limit
    if span is not None:
        places: Floats = points.times if span.by_time else points.steps.astype(np.float64)
        if span.low is not None:
            wanted &= places >= span.low
        if span.high is not None:
            wanted &= places <= span.high
    return wanted


def _concatenate(parts: Sequence[Any]) -> Any:
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def _build_curve(task: str, name: str, segments: Sequence[_Segment], cells: Cells, is_complete: bool) -> Curve:
    limits = _find_limits(segments)
    counted = [one for one in segments if one.first_step < limits[one.key.attempt]]
    valued = [one for one in counted if one.last is not None]
    newest = max(valued, key=lambda one: (one.key.attempt, one.last_value_step or 0), default=None)
    first = {one.key.attempt: 0 for one in segments}
    for attempt in first:
        first[attempt] = min(one.first_step for one in segments if one.key.attempt == attempt)
    return Curve(
        task,
        name,
        segments[-1].key.source,
        cells,
        newest.last if newest else None,
        newest.last_value_step if newest else None,
        [first[attempt] for attempt in sorted(first)[1:]],
        sum(one.not_finite for one in counted),
        is_complete,
    )
