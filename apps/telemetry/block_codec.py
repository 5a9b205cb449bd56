"""A block's values as bytes, and back.

    4 bytes, the header's length │ header (JSON) │ for each metric: its columns, deflated

All columns of a metric lie together, so that who wants to see the power of eight GPUs inflates nothing else. A value is
a float32 of which 12 bits of the fraction are kept (a part in 4,096 is more than a chart can show, and deflates to
half); NaN: nothing is known.
"""

import struct
import zlib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import orjson

from fermi.telemetry.metrics import LAST, MASK, METRICS, SUM

Column = np.ndarray[Any, np.dtype[np.float32]]
_HEAD = struct.Struct("<I")
_KEPT, _HALF = np.uint32(0xFFFFF800), np.uint32(0x400)
MOST_BITS = 2**11 - 1
"""Of a mask: those that a value's fraction keeps."""
COUNTS = frozenset(name for name, metric in METRICS.items() if metric.fold == SUM)
PEAK = "^"
"""Behind a key: the largest of the values that became one, where `values` has their mean."""


@dataclass(slots=True)
class Values:
    """`columns`: by key, `count` values each."""

    count: int
    columns: dict[str, Column] = field(default_factory=dict)
    emulated: bool = False

    def column(self, key: str) -> Column:
        found = self.columns.get(key)
        if found is None:
            found = self.columns[key] = np.full(self.count, np.nan, np.float32)
        return found

    def fill(self, other: "Values") -> None:
        """Takes over what is not known here."""
        for key, column in other.columns.items():
            mine = self.column(key)
            np.copyto(mine, column, where=np.isnan(mine))
        self.emulated = self.emulated or other.emulated


def counted(values: Values) -> dict[str, float]:
    """Of metrics that count: how much all in all, by key, where it is anything."""
    sums = {key: float(np.nansum(values.columns[key])) for key in values.columns if metric_of(key) in COUNTS}
    return {key: count for key, count in sums.items() if count}


def metric_of(key: str) -> str:
    return key.partition(":")[0].rstrip(PEAK)


def pack(values: Values) -> bytes:
    metrics: dict[str, list[str]] = {}
    for key in sorted(values.columns):
        metrics.setdefault(metric_of(key), []).append(key)
    bodies = [zlib.compress(_bytes([values.columns[key] for key in keys]), 1) for keys in metrics.values()]
    lengths = map(len, bodies)
    header = orjson.dumps({
        "count": values.count,
        "emulated": values.emulated,
        "metrics": [[metric, keys, length] for (metric, keys), length in zip(metrics.items(), lengths, strict=True)],
    })  # fmt: skip
    return b"".join((_HEAD.pack(len(header)), header, *bodies))


def unpack(data: bytes | memoryview, wanted: Collection[str] | None = None) -> Values:
    """`wanted`: metrics; None: all of them."""
    view = memoryview(data)
    (length,) = _HEAD.unpack_from(view)
    at = _HEAD.size + length
    header = orjson.loads(view[_HEAD.size : at])
    found = Values(header["count"], emulated=header["emulated"])
    for metric, keys, size in header["metrics"]:
        if wanted is None or metric in wanted:
            table = np.frombuffer(zlib.decompress(view[at : at + size]), np.uint8).reshape(4, len(keys), -1)
            columns = np.ascontiguousarray(np.moveaxis(table, 0, 2)).view("<f4")[..., 0]
            found.columns.update(zip(keys, columns.copy(), strict=True))
        at += size
    return found


def _bytes(columns: Iterable[Column]) -> bytes:
    """Of all values the first byte, then of all the second: what is alike lies together."""
    bits = np.stack(list(columns)).astype("<f4").view("<u4")
    short = np.where((bits & 0x7F800000) == 0x7F800000, bits, (bits + _HALF) & _KEPT)
    return np.ascontiguousarray(np.moveaxis(short.astype("<u4")[..., None].view(np.uint8), 2, 0)).tobytes()


def coarser(values: Values, factor: int) -> Values:
    """Each `factor` values as one. Beside a mean stands the largest."""
    found = Values(values.count // factor, emulated=values.emulated)
    for key, column in values.columns.items():
        found.columns.update(fold(key, column.reshape(-1, factor)))
    return found


def fold(key: str, table: Column) -> Mapping[str, Column]:
    """Rows as one value each."""
    if key.partition(":")[0].endswith(PEAK):
        return {key: _largest(table)}
    how = METRICS[metric_of(key)].fold
    if how == SUM:
        return {key: np.where(np.isnan(table).all(axis=1), np.nan, np.nansum(table, axis=1)).astype(np.float32)}
    if how == LAST:
        return {key: _last(table)}
    if how == MASK:
        known = np.clip(np.nan_to_num(table, nan=0.0), 0, MOST_BITS)
        bits = np.bitwise_or.reduce(known.astype(np.uint32), axis=1).astype(np.float32)
        return {key: np.where(np.isnan(table).all(axis=1), np.float32(np.nan), bits)}
    known = (~np.isnan(table)).sum(axis=1)
    mean = np.divide(
        np.nansum(table, axis=1, dtype=np.float64), known, out=np.full(len(table), np.nan), where=known > 0
    )
    return {key: mean.astype(np.float32), peak(key): _largest(table)}


def peak(key: str) -> str:
    metric, colon, index = key.partition(":")
    return f"{metric}{PEAK}{colon}{index}"


def _largest(table: Column) -> Column:
    found: Column = np.where(np.isnan(table), -np.inf, table).max(axis=1, initial=-np.inf).astype(np.float32)
    found[np.isneginf(found)] = np.nan
    return found


def _last(table: Column) -> Column:
    """Of each row, the last that is known."""
    known = ~np.isnan(table)
    at = table.shape[1] - 1 - known[:, ::-1].argmax(axis=1)
    return table[np.arange(len(table)), at]
