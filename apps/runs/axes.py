"""Axes that curves of several runs are laid on: from the steps and times of a run's points to places on the axis.

A place is found from one of the two, by a line or by a line through known places (`Scale`), so that a part of the axis
is also a part of the stored points (`Scale.invert`), and only that part is read.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from apps.common.clock import now
from apps.scheduling.models import Usage
from apps.training.public import FINAL_STATES, Curve, CurveReader, Span, Task, list_unbooked_usage
from fermi.jobs.spec import JobSpec
from fermi.metrics.downsampling import Cells, Floats
from fermi.metrics.sources import canonicalize
from fermi.planning import plugins

STEP, TIME, RELATIVE_TIME, TOKENS, SAMPLES, GPU_HOURS = (
    "step", "time", "relativeTime", "tokens", "samples", "gpuHours"
)  # fmt: skip
AXES = (STEP, TIME, RELATIVE_TIME, TOKENS, SAMPLES, GPU_HOURS)
COUNTERS: Mapping[str, frozenset[str]] = {
    TOKENS: frozenset({
        "tokens", "total_tokens", "num_tokens", "n_tokens", "tokens_seen", "num_tokens_seen", "consumed_tokens",
        "processed_tokens", "num_input_tokens_seen", "global_tokens",
    }),
    SAMPLES: frozenset({
        "samples", "total_samples", "num_samples", "samples_seen", "num_samples_seen", "consumed_samples",
        "consumed_train_samples", "processed_samples", "examples", "examples_seen", "global_samples",
    }),
}  # fmt: skip
"""Names, as `fermi.metrics.sources.canonicalize` writes them, of values that count what a run has trained on:
Transformers' `num_input_tokens_seen`, Megatron's `consumed samples`, and what scripts call the same."""
MAX_COUNTER_POINTS = 2000
ABSENCES = {TOKENS: "SERIES_WITHOUT_TOKENS", SAMPLES: "SERIES_WITHOUT_SAMPLES", GPU_HOURS: "SERIES_WITHOUT_GPUS"}
"""What is said of a run that has no place on an axis."""
SECONDS_PER_HOUR = 3600


@dataclass(frozen=True, slots=True)
class Scale:
    """How a run's points lie on an axis. `by_time`: their unix seconds count, else their steps. A line through
    (`origin`, 0) with `factor`, or through `knots` (ascending) with these `places` (not descending)."""

    by_time: bool
    origin: float = 0.0
    factor: float = 1.0
    knots: Floats | None = None
    places: Floats | None = None

    def place_cells(self, cells: Cells) -> Floats:
        """Return where the middles of cells are."""
        if self.by_time:
            middles = (cells.first_times + cells.last_times) / 2
        else:
            middles = (cells.first_steps + cells.last_steps) / 2.0
        return self.place(middles)

    def place(self, points: Floats) -> Floats:
        """Return where steps or times are."""
        if self.knots is None or self.places is None:
            return (points - self.origin) * self.factor
        found: Floats = np.interp(points, self.knots, self.places)
        return found

    def invert(self, low: float | None, high: float | None) -> Span:
        """Return the steps or times of a part of the axis."""
        return Span(self._invert(low, "left"), self._invert(high, "right"), self.by_time)

    def _invert(self, place: float | None, side: Any) -> float | None:
        """Return the step or time at a place: of several at one place the first (`left`) or last one (`right`)."""
        if place is None:
            return None
        if self.knots is None or self.places is None:
            return place / self.factor + self.origin
        at = int(np.searchsorted(self.places, place, side))
        if at in (0, len(self.places)):
            return None
        low, high = self.places[at - 1], self.places[at]
        share = (place - low) / (high - low) if high > low else 0.0
        return float(self.knots[at - 1] + share * (self.knots[at] - self.knots[at - 1]))


def find_scales(axis: str, tasks: Sequence[Task], reader: CurveReader) -> dict[str, Scale]:
    """Return the scales of the tasks that have a place on the axis."""
    match axis:
        case "step":
            return {task.pk: Scale(by_time=False) for task in tasks}
        case "time":
            return {task.pk: Scale(by_time=True) for task in tasks}
        case "relativeTime":
            return {task.pk: Scale(by_time=True, origin=_find_start(task)) for task in tasks}
        case "gpuHours":
            found = {task.pk: _find_gpu_hours(task) for task in tasks}
        case _:
            found = _find_counters(axis, tasks, reader)
    return {task: scale for task, scale in found.items() if scale is not None}


def _find_start(task: Task) -> float:
    """Return since when the task runs, in unix seconds."""
    return (task.started_at or task.created_at).timestamp()


def _find_gpu_hours(task: Task) -> Scale | None:
    """Return the GPU time that the task had held at each moment: that of its usage, whatever it was used for."""
    rows = list(Usage.objects.filter(task=task.pk))
    if task.state not in FINAL_STATES:
        rows += list_unbooked_usage(task, now())
    held = [(row.since.timestamp(), row.until.timestamp(), row.gpus) for row in rows if row.gpus]
    if not held:
        return None
    moments = np.unique(np.array([moment for since, until, _ in held for moment in (since, until)]))
    hours = np.zeros(len(moments))
    for since, until, gpus in held:
        hours += gpus * (np.clip(moments, since, until) - since) / SECONDS_PER_HOUR
    return Scale(by_time=True, knots=moments, places=hours)


def _find_counters(axis: str, tasks: Sequence[Task], reader: CurveReader) -> dict[str, Scale | None]:
    """Return how many tokens or samples the tasks had trained on at each step: as they have logged it, else the batch
    of an optimizer step where the platform knows it."""
    known = reader.list_names()
    names = sorted({name for mine in known.values() for name in mine if canonicalize(name) in COUNTERS[axis]})
    curves: dict[str, list[Curve]] = {}
    for curve in reader.read(names, MAX_COUNTER_POINTS) if names else ():
        curves.setdefault(curve.task_id, []).append(curve)
    found: dict[str, Scale | None] = {}
    for task in tasks:
        scales = [scale for curve in curves.get(task.pk, ()) if (scale := _read_counter(curve))]
        found[task.pk] = scales[0] if scales else _find_batch(axis, task)
    return found


def _read_counter(curve: Curve) -> Scale | None:
    """Return the scale of a logged counter; None for values that do not grow: a batch's own number."""
    cells = curve.cells
    knots, places = np.asarray(cells.last_steps, np.float64), np.asarray(cells.highs, np.float64)
    if len(places) < 2 or np.any(np.diff(places) < 0) or places[-1] <= places[0]:
        return None
    return Scale(by_time=False, knots=knots, places=places)


def _find_batch(axis: str, task: Task) -> Scale | None:
    """Return the scale of a batch that each optimizer step has; None where a user's own script decides it."""
    job = JobSpec.from_json(task.spec)
    if job.entrypoint:
        return None
    batch = plugins.get_framework(job.framework).effective_batch(job)
    length = job.hyperparameters.get("sequenceLength") if axis == TOKENS else 1
    if batch is None or not isinstance(length, int) or batch.effective * length <= 0:
        return None
    return Scale(by_time=False, factor=float(batch.effective * length))
