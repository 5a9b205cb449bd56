"""Reads series: at the coarsest resolution that still has the requested points, and from finer ones where that was not
made yet."""

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import orjson

from apps.common.clock import now
from apps.common.sql import split_keys
from apps.telemetry import block_store
from apps.telemetry.block_codec import PEAK_SUFFIX, Column, ColumnBlock, downsample_block, fold_rows, make_peak_key
from apps.telemetry.models import Block
from apps.telemetry.resolutions import COARSE, FINE, RESOLUTIONS, Resolution

FRESH_SECONDS = 90.0
"""Seconds for which a value counts as the present one: a subject is written at least once a minute."""


@dataclass(frozen=True, slots=True)
class Series:
    """`values`: one for each step, NaN where unknown. `most`: the largest within each step, where `values` has
    means."""

    values: Column
    most: Column | None = None


@dataclass(slots=True)
class SeriesTable:
    """Series on one grid: the first value is that of the `step` seconds from `begins` (unix seconds) on. `columns`: by
    subject and key."""

    begins: float
    step: int
    count: int
    columns: dict[tuple[str, str], Series] = field(default_factory=dict)
    emulated: set[str] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class NewestValues:
    """What a subject used at `at` (unix seconds), by key."""

    at: float
    values: Mapping[str, float]
    emulated: bool = False

    def disks(self) -> Iterator[tuple[str, float]]:
        """Yield each path with the share of its disk that is used."""
        for key, used in self.values.items():
            metric, _, path = key.partition(":")
            if metric == "disk_used" and (total := self.values.get(f"disk_total:{path}")):
                yield path, used / total


def read_series(
    subjects: Sequence[str], metrics: Collection[str], begins: float, ends: float, points: int
) -> SeriesTable:
    """Return the values of the metrics between two moments (unix seconds), at most `points` for each series."""
    span = max(ends - begins, 1.0)
    grain = _choose_resolution(begins, span / points)
    step = max(1, math.ceil(span / points / grain.seconds)) * grain.seconds
    first = int(begins // step) * step
    count = max(1, math.ceil((ends - first) / step))
    table = SeriesTable(first, step, count)
    for subject, values in _read_columns(grain, subjects, metrics, first, count * step // grain.seconds):
        if values.emulated:
            table.emulated.add(subject)
        for key, column in values.columns.items():
            if not _is_peak(key):
                folded = fold_rows(key, column.reshape(count, -1))
                most = folded.get(make_peak_key(key))
                if (finer := values.columns.get(make_peak_key(key))) is not None:
                    most = fold_rows(make_peak_key(key), finer.reshape(count, -1))[make_peak_key(key)]
                table.columns[subject, key] = Series(folded[key], most if step > FINE.seconds else None)
    return table


def read_newest(subjects: Collection[str]) -> dict[str, NewestValues]:
    """Return present values by subject, without subjects that reported nothing recently. One query for each five
    hundred subjects, which reads no series."""
    moment = now().timestamp()
    found: dict[str, NewestValues] = {}
    for some in split_keys(subjects):
        rows = Block.objects.filter(
            subject__in=some,
            grain=FINE.seconds,
            sealed=False,
            begins__gte=FINE.find_block_start(moment - FRESH_SECONDS),
        ).order_by("begins")
        for subject, data in rows.values_list("subject", "newest").iterator():
            said = orjson.loads(bytes(data)) if data else {}
            if said and moment - said["at"] <= FRESH_SECONDS:
                found[subject] = NewestValues(said["at"], said["values"], said["emulated"])
    return found


def sum_recent_counters(subjects: Collection[str], metric: str, seconds: int) -> dict[str, dict[str, float]]:
    """Return the counts of a counter metric within the last `seconds`, to a minute, by subject and key, without zeros.
    Series are read only of subjects whose blocks say that they counted."""
    moment, having = now().timestamp(), set[str]()
    for some in split_keys(subjects):
        rows = Block.objects.filter(
            subject__in=some, grain=FINE.seconds, begins__gt=moment - seconds - FINE.block
        ).values_list("subject", "newest")
        having |= {subject for subject, data in rows.iterator() if b'"counted":{"' in bytes(data)}
    table = read_series(sorted(having), {metric}, moment - seconds, moment, seconds // 60)
    found: dict[str, dict[str, float]] = {}
    for (subject, key), told in table.columns.items():
        if count := float(np.nansum(told.values)):
            found.setdefault(subject, {})[key] = count
    return found


def _choose_resolution(begins: float, step: float) -> Resolution:
    """Return the coarsest resolution that is not coarser than `step` and still has values of that age."""
    age = now().timestamp() - begins
    fine_enough = [grain for grain in RESOLUTIONS if grain.seconds <= step] or [FINE]
    kept = [grain for grain in RESOLUTIONS if grain.kept >= age] or [RESOLUTIONS[-1]]
    return max(fine_enough[-1], kept[0], key=lambda grain: grain.seconds)


def _read_columns(
    grain: Resolution, subjects: Sequence[str], metrics: Collection[str], first: int, count: int
) -> Iterator[tuple[str, ColumnBlock]]:
    """Yield the values by subject: `count` of them from `first` on."""
    found: dict[str, ColumnBlock] = {}
    last = first + count * grain.seconds
    for block in block_store.load_blocks(grain, subjects, first, last, metrics):
        _copy_into(
            found.setdefault(block.subject, ColumnBlock(count)), block.values, block.begins - first, grain.seconds
        )
    if grain in COARSE:
        for block in block_store.load_blocks(FINE, subjects, first, last, metrics, sealed=False):
            part = downsample_block(block.values, grain.seconds // FINE.seconds)
            _copy_into(found.setdefault(block.subject, ColumnBlock(count)), part, block.begins - first, grain.seconds)
    yield from found.items()


def _copy_into(target: ColumnBlock, part: ColumnBlock, seconds: int, grain: int) -> None:
    at = seconds // grain
    begin, end = max(at, 0), min(at + part.count, target.count)
    if begin < end:
        for key, column in part.columns.items():
            np.copyto(target.column(key)[begin:end], column[begin - at : end - at])
        target.emulated = target.emulated or part.emulated


def _is_peak(key: str) -> bool:
    return key.partition(":")[0].endswith(PEAK_SUFFIX)


__all__ = [
    "FRESH_SECONDS",
    "NewestValues",
    "Series",
    "SeriesTable",
    "read_newest",
    "read_series",
    "sum_recent_counters",
]
