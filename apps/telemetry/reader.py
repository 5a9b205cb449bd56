"""Reads series: the coarsest grain that still shows as many points as somebody can see, and where that has not been
made yet, finer ones."""

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import orjson

from apps.common.clock import now
from apps.common.sql import slices
from apps.telemetry import block_store
from apps.telemetry.block_codec import PEAK, Column, Values, coarser, fold, peak
from apps.telemetry.models import Block
from apps.telemetry.resolutions import COARSE, FINE, GRAINS, Grain

FRESH = 90.0
"""Seconds within which a value is the present one: a subject is written once a minute at least."""


@dataclass(frozen=True, slots=True)
class Series:
    """`values`: one for each step, NaN where nothing is known. `most`: the largest within each step, where `values` has
    means of several."""

    values: Column
    most: Column | None = None


@dataclass(slots=True)
class Table:
    """On one grid: the first value is that of the `step` seconds from `begins` (unix seconds) on. `columns`: by subject
    and key."""

    begins: float
    step: int
    count: int
    columns: dict[tuple[str, str], Series] = field(default_factory=dict)
    emulated: set[str] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class Newest:
    """Of a subject: what it used at `at` (unix seconds), by key."""

    at: float
    values: Mapping[str, float]
    emulated: bool = False

    def disks(self) -> Iterator[tuple[str, float]]:
        """Each path, with the share of its disk that is used."""
        for key, used in self.values.items():
            metric, _, path = key.partition(":")
            if metric == "disk_used" and (total := self.values.get(f"disk_total:{path}")):
                yield path, used / total


def series(subjects: Sequence[str], metrics: Collection[str], begins: float, ends: float, points: int) -> Table:
    """Values of the metrics between two moments (unix seconds), at most `points` for each."""
    span = max(ends - begins, 1.0)
    grain = _grain(begins, span / points)
    step = max(1, math.ceil(span / points / grain.seconds)) * grain.seconds
    first = int(begins // step) * step
    count = max(1, math.ceil((ends - first) / step))
    table = Table(first, step, count)
    for subject, values in _at(grain, subjects, metrics, first, count * step // grain.seconds):
        if values.emulated:
            table.emulated.add(subject)
        for key, column in values.columns.items():
            if not _is_peak(key):
                folded = fold(key, column.reshape(count, -1))
                most = folded.get(peak(key))
                if (finer := values.columns.get(peak(key))) is not None:
                    most = fold(peak(key), finer.reshape(count, -1))[peak(key)]
                table.columns[subject, key] = Series(folded[key], most if step > FINE.seconds else None)
    return table


def newest(subjects: Collection[str]) -> dict[str, Newest]:
    """What they use at present; without those that nothing was heard of lately. As cheap for a thousand as for one: a
    question for each five hundred, that reads no series."""
    moment = now().timestamp()
    found: dict[str, Newest] = {}
    for some in slices(subjects):
        rows = Block.objects.filter(
            subject__in=some, grain=FINE.seconds, sealed=False, begins__gte=FINE.begin(moment - FRESH)
        ).order_by("begins")
        for subject, data in rows.values_list("subject", "newest").iterator():
            said = orjson.loads(bytes(data)) if data else {}
            if said and moment - said["at"] <= FRESH:
                found[subject] = Newest(said["at"], said["values"], said["emulated"])
    return found


def counted(subjects: Collection[str], metric: str, seconds: int) -> dict[str, dict[str, float]]:
    """How much a metric that counts has counted within the last `seconds`, to a minute, by subject and key; where it
    is anything. The series are read of those alone of which a block says that it counted."""
    moment, having = now().timestamp(), set[str]()
    for some in slices(subjects):
        rows = Block.objects.filter(
            subject__in=some, grain=FINE.seconds, begins__gt=moment - seconds - FINE.block
        ).values_list("subject", "newest")
        having |= {subject for subject, data in rows.iterator() if b'"counted":{"' in bytes(data)}
    table = series(sorted(having), {metric}, moment - seconds, moment, seconds // 60)
    found: dict[str, dict[str, float]] = {}
    for (subject, key), told in table.columns.items():
        if count := float(np.nansum(told.values)):
            found.setdefault(subject, {})[key] = count
    return found


def _grain(begins: float, step: float) -> Grain:
    """The coarsest one that is not coarser than `step`, and that still has what is so old."""
    age = now().timestamp() - begins
    fine_enough = [grain for grain in GRAINS if grain.seconds <= step] or [FINE]
    kept = [grain for grain in GRAINS if grain.kept >= age] or [GRAINS[-1]]
    return max(fine_enough[-1], kept[0], key=lambda grain: grain.seconds)


def _at(
    grain: Grain, subjects: Sequence[str], metrics: Collection[str], first: int, count: int
) -> Iterator[tuple[str, Values]]:
    """By subject, `count` values from `first` on."""
    found: dict[str, Values] = {}
    last = first + count * grain.seconds
    for block in block_store.load(grain, subjects, first, last, metrics):
        _place(found.setdefault(block.subject, Values(count)), block.values, block.begins - first, grain.seconds)
    if grain in COARSE:
        for block in block_store.load(FINE, subjects, first, last, metrics, sealed=False):
            part = coarser(block.values, grain.seconds // FINE.seconds)
            _place(found.setdefault(block.subject, Values(count)), part, block.begins - first, grain.seconds)
    yield from found.items()


def _place(into: Values, part: Values, seconds: int, grain: int) -> None:
    at = seconds // grain
    begin, end = max(at, 0), min(at + part.count, into.count)
    if begin < end:
        for key, column in part.columns.items():
            np.copyto(into.column(key)[begin:end], column[begin - at : end - at])
        into.emulated = into.emulated or part.emulated


def _is_peak(key: str) -> bool:
    return key.partition(":")[0].endswith(PEAK)


__all__ = ["FRESH", "Newest", "Series", "Table", "counted", "newest", "series"]
