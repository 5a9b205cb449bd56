"""Reads series: at the coarsest resolution that still has the requested points, and from finer ones where that was not
made yet."""

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
"""Seconds for which a value counts as the present one: a subject is written at least once a minute."""


@dataclass(frozen=True, slots=True)
class Series:
    """`values`: one for each step, NaN where unknown. `most`: the largest within each step, where `values` has
    means."""

    values: Column
    most: Column | None = None


@dataclass(slots=True)
class Table:
    """Series on one grid: the first value is that of the `step` seconds from `begins` (unix seconds) on. `columns`: by
    subject and key."""

    begins: float
    step: int
    count: int
    columns: dict[tuple[str, str], Series] = field(default_factory=dict)
    emulated: set[str] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class Newest:
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


def series(subjects: Sequence[str], metrics: Collection[str], begins: float, ends: float, points: int) -> Table:
    """Return the values of the metrics between two moments (unix seconds), at most `points` for each series."""
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
    """Return present values by subject, without subjects that reported nothing recently. One query for each five
    hundred subjects, which reads no series."""
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
    """Return the counts of a counter metric within the last `seconds`, to a minute, by subject and key, without zeros.
    Series are read only of subjects whose blocks say that they counted."""
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
    """Return the coarsest resolution that is not coarser than `step` and still has values of that age."""
    age = now().timestamp() - begins
    fine_enough = [grain for grain in GRAINS if grain.seconds <= step] or [FINE]
    kept = [grain for grain in GRAINS if grain.kept >= age] or [GRAINS[-1]]
    return max(fine_enough[-1], kept[0], key=lambda grain: grain.seconds)


def _at(
    grain: Grain, subjects: Sequence[str], metrics: Collection[str], first: int, count: int
) -> Iterator[tuple[str, Values]]:
    """Yield the values by subject: `count` of them from `first` on."""
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
