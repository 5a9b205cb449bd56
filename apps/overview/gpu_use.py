"""Which GPUs are in use, from the telemetry of the last minutes."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

import numpy as np

from apps.telemetry import reader, subjects

MIN_BUSY_PERCENT = 5.0
"""Per cent; a GPU with less utilisation is not in use."""
IDLE_AFTER = timedelta(minutes=10)
RECENT_STEPS, MIN_KNOWN_SHARE = 10, 0.7
"""Number of steps into which IDLE_AFTER is divided, and the share of them with values that a GPU needs to count as
idle."""
GPU_METRIC = "gpu"
SECONDS_PER_HOUR = 3600.0


class GpuUse(NamedTuple):
    """How many GPUs of a machine were in use within IDLE_AFTER, and how many certainly were not."""

    busy: int = 0
    idle: int = 0


class DiskUse(NamedTuple):
    """How full a disk is."""

    path: str
    percent: int


UNKNOWN_USE = GpuUse()


def read_gpu_use(held_since: Mapping[str, datetime], gpus: Mapping[str, int], moment: datetime) -> Mapping[str, GpuUse]:
    """Return the GPU use of these environments; `held`: since when a task has each, `gpus`: how many GPUs each has. An
    environment that is held for less than IDLE_AFTER is not idle. Series are read only of those whose GPUs are unused
    at present."""
    present: dict[str, list[float]] = {}
    for subject, newest in reader.read_newest(subjects.make_environment_subjects(held_since)).items():
        values = [value for key, value in newest.values.items() if key.startswith(f"{GPU_METRIC}:")]
        present[subjects.get_subject_id(subject)] = values[: gpus[subjects.get_subject_id(subject)]]
    quiet = [
        key for key, values in present.items()
        if any(value < MIN_BUSY_PERCENT for value in values) and moment - held_since[key] >= IDLE_AFTER
    ]  # fmt: skip
    known = _read_recent_use(quiet, moment)
    found = {}
    for key, values in present.items():
        busy, idle = known.get(key, (sum(value >= MIN_BUSY_PERCENT for value in values), 0))
        found[key] = GpuUse(min(busy, gpus[key]), min(idle, gpus[key] - min(busy, gpus[key])))
    return found


def _read_recent_use(environments: Sequence[str], moment: datetime) -> dict[str, tuple[int, int]]:
    """Return the number of GPUs in use, and of idle ones, by environment."""
    found: dict[str, tuple[int, int]] = {}
    if not environments:
        return found
    ends = moment.timestamp()
    table = reader.read_series(
        subjects.make_environment_subjects(environments),
        {GPU_METRIC},
        ends - IDLE_AFTER.total_seconds(),
        ends,
        RECENT_STEPS,
    )
    for (subject, _), series in table.columns.items():
        values = series.values if series.most is None else series.most
        known = values[~np.isnan(values)]
        busy, idle = found.get(subjects.get_subject_id(subject), (0, 0))
        if known.size and known.max() >= MIN_BUSY_PERCENT:
            busy += 1
        elif known.size >= MIN_KNOWN_SHARE * RECENT_STEPS:
            idle += 1
        found[subjects.get_subject_id(subject)] = busy, idle
    return found


def measure_gpu_hours(
    environments: Sequence[str], begins: datetime, ends: datetime
) -> Mapping[str, tuple[float, float]]:
    """Return of each environment the GPU-hours that were measured between the two moments, and those in use."""
    found: dict[str, tuple[float, float]] = {}
    points = 6 if ends - begins == timedelta(hours=1) else 60  # a step that has only begun counts whole
    table = reader.read_series(
        subjects.make_environment_subjects(environments), {GPU_METRIC}, begins.timestamp(), ends.timestamp(), points
    )
    for (subject, _), series in table.columns.items():
        known = series.values[~np.isnan(series.values)]
        key = subjects.get_subject_id(subject)
        measured, used = found.get(key, (0.0, 0.0))
        share = table.step / SECONDS_PER_HOUR
        found[key] = measured + known.size * share, used + float(known.sum()) / 100 * share
    return found


def list_full_disks(environments: Sequence[str], nearly: float) -> Iterator[tuple[str, DiskUse]]:
    """Yield the disks of which more than the share `nearly` is used, with their environment."""
    for subject, newest in reader.read_newest(subjects.make_environment_subjects(environments)).items():
        for path, used in newest.disks():
            if used >= nearly:
                yield subjects.get_subject_id(subject), DiskUse(path, round(100 * used))
