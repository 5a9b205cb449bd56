"""What the machines of runs used, as curves on the same axes as what their scripts reported.

`machine.gpu` is the mean of all GPUs of a run, `machine.rank_memory` that of all ranks, and so on with each name of
`fermi.telemetry.metrics`. Machines are measured by time; the step at a moment is that of the run's own curves.
"""

from collections.abc import Sequence

import numpy as np

from apps.common.errors import ApiError
from apps.runs.axes import Scale
from apps.training.public import Curve, CurveReader, Task, read_task_telemetry
from fermi.metrics.downsampling import Floats, fold_points
from fermi.metrics.sources import find_loss
from fermi.telemetry.metrics import METRICS

PREFIX = "machine."
NAMES = tuple(f"{PREFIX}{name}" for name, metric in METRICS.items() if metric.fold == "mean")
SOURCE = "machine"
MIN_POINTS = 10
STEP_POINTS = 2000
"""Points of a run's own curve by which its steps at each moment are known."""


def read_machine_curves(
    tasks: Sequence[Task], names: Sequence[str], points: int, scales: dict[str, Scale], reader: CurveReader
) -> list[Curve]:
    """Return the curves of these `machine.…` metrics that there are, by task and name."""
    if not names:
        return []
    found = []
    steps = _find_steps(tasks, reader) if any(not scale.by_time for scale in scales.values()) else {}
    for task in tasks:
        if task.pk not in scales or (not scales[task.pk].by_time and task.pk not in steps):
            continue
        for name in names:
            times, values = _read_means(task, name.removeprefix(PREFIX), max(MIN_POINTS, points))
            if not len(values):
                continue
            if task.pk in steps:
                moments, known = steps[task.pk]
                inside = (times >= moments[0]) & (times <= moments[-1])
                times, values = times[inside], values[inside]
                places = np.interp(times, moments, known).astype(np.int64)
            else:
                places = np.arange(len(times), dtype=np.int64)
            cells = fold_points(places, times, values)
            last = float(cells.sums[-1]) if len(cells) else None
            found.append(Curve(task.pk, name, SOURCE, cells, last, None, [], 0, is_complete=True))
    return found


def _read_means(task: Task, metric: str, points: int) -> tuple[Floats, Floats]:
    """Return the times, in unix seconds, at which a metric is known, and its mean over all that have it."""
    try:
        answer = read_task_telemetry(task, {"metric": [metric], "points": points})
    except ApiError:  # it has not run for any time
        return np.empty(0), np.empty(0)
    table = np.array([one["values"] for one in answer["series"]], np.float64)
    if not table.size:
        return np.empty(0), np.empty(0)
    counts = np.isfinite(table).sum(axis=0)
    begins = answer["from"].timestamp()
    times = begins + answer["stepSeconds"] * (np.arange(table.shape[1]) + 0.5)
    known = counts > 0
    return times[known], np.nansum(table, axis=0)[known] / counts[known]


def _find_steps(tasks: Sequence[Task], reader: CurveReader) -> dict[str, tuple[Floats, Floats]]:
    """Return of each task the moments at which its steps are known, and the steps: those of its loss, or of another
    curve. Time in which steps were done that were done again later is between two of them."""
    names = {
        task: find_loss(dict.fromkeys(mine, 0.0)) or min(mine) for task, mine in reader.list_names().items() if mine
    }
    found = {}
    for curve in reader.read(sorted(set(names.values())), STEP_POINTS):
        if names.get(curve.task_id) != curve.name or len(curve.cells) < 2:
            continue
        moments = np.maximum.accumulate(curve.cells.last_times)
        found[curve.task_id] = (moments, curve.cells.last_steps.astype(np.float64))
    return found
