"""Encoding of a block's values as bytes.

    4 bytes, the header's length │ header (JSON) │ for each metric: its columns, deflated

All columns of a metric are stored together, so that reading the power of eight GPUs inflates nothing else. A value is a
float32 with 12 bits of its fraction (one part in 4,096 is finer than a chart shows, and compresses to half the size);
NaN: unknown.
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
_HEADER_LENGTH = struct.Struct("<I")
_KEPT_BITS, _HALF_STEP = np.uint32(0xFFFFF800), np.uint32(0x400)
MAX_MASK = 2**11 - 1
"""Largest mask: the bits that a value's fraction keeps."""
COUNTER_METRICS = frozenset(name for name, metric in METRICS.items() if metric.fold == SUM)
PEAK_SUFFIX = "^"
"""Suffix of a metric: the largest of the values that were combined, where the metric itself has their mean."""


@dataclass(slots=True)
class ColumnBlock:
    """Values of one block. `columns`: by key, `count` values each."""

    count: int
    columns: dict[str, Column] = field(default_factory=dict)
    emulated: bool = False

    def column(self, key: str) -> Column:
        """Return the column of a key; a new one has unknown values only."""
        found = self.columns.get(key)
        if found is None:
            found = self.columns[key] = np.full(self.count, np.nan, np.float32)
        return found

    def fill(self, other: "ColumnBlock") -> None:
        """Take over from `other` the values that are unknown here."""
        for key, column in other.columns.items():
            mine = self.column(key)
            np.copyto(mine, column, where=np.isnan(mine))
        self.emulated = self.emulated or other.emulated


def sum_counters(values: ColumnBlock) -> dict[str, float]:
    """Return the sum of each counter metric by key, without zeros."""
    sums = {
        key: float(np.nansum(values.columns[key])) for key in values.columns if get_metric_name(key) in COUNTER_METRICS
    }
    return {key: count for key, count in sums.items() if count}


def get_metric_name(key: str) -> str:
    """Return the metric's name in a key."""
    return key.partition(":")[0].rstrip(PEAK_SUFFIX)


def pack_block(values: ColumnBlock) -> bytes:
    """Return the block as bytes."""
    metrics: dict[str, list[str]] = {}
    for key in sorted(values.columns):
        metrics.setdefault(get_metric_name(key), []).append(key)
    bodies = [zlib.compress(_shuffle_bytes([values.columns[key] for key in keys]), 1) for keys in metrics.values()]
    lengths = map(len, bodies)
    header = orjson.dumps({
        "count": values.count,
        "emulated": values.emulated,
        "metrics": [[metric, keys, length] for (metric, keys), length in zip(metrics.items(), lengths, strict=True)],
    })  # fmt: skip
    return b"".join((_HEADER_LENGTH.pack(len(header)), header, *bodies))


def unpack_block(data: bytes | memoryview, metrics: Collection[str] | None = None) -> ColumnBlock:
    """Return the block. `metrics`: only these are read; None: all of them."""
    view = memoryview(data)
    (length,) = _HEADER_LENGTH.unpack_from(view)
    at = _HEADER_LENGTH.size + length
    header = orjson.loads(view[_HEADER_LENGTH.size : at])
    found = ColumnBlock(header["count"], emulated=header["emulated"])
    for metric, keys, size in header["metrics"]:
        if metrics is None or metric in metrics:
            table = np.frombuffer(zlib.decompress(view[at : at + size]), np.uint8).reshape(4, len(keys), -1)
            columns = np.ascontiguousarray(np.moveaxis(table, 0, 2)).view("<f4")[..., 0]
            found.columns.update(zip(keys, columns.copy(), strict=True))
        at += size
    return found


def _shuffle_bytes(columns: Iterable[Column]) -> bytes:
    """Return the first byte of all values, then all second bytes and so on: similar bytes together compress better."""
    bits = np.stack(list(columns)).astype("<f4").view("<u4")
    short = np.where((bits & 0x7F800000) == 0x7F800000, bits, (bits + _HALF_STEP) & _KEPT_BITS)
    return np.ascontiguousarray(np.moveaxis(short.astype("<u4")[..., None].view(np.uint8), 2, 0)).tobytes()


def downsample_block(values: ColumnBlock, factor: int) -> ColumnBlock:
    """Return a block with each `factor` values combined into one; with a mean also the largest."""
    found = ColumnBlock(values.count // factor, emulated=values.emulated)
    for key, column in values.columns.items():
        found.columns.update(fold_rows(key, column.reshape(-1, factor)))
    return found


def fold_rows(key: str, table: Column) -> Mapping[str, Column]:
    """Return columns with each row of the table combined into one value."""
    if key.partition(":")[0].endswith(PEAK_SUFFIX):
        return {key: _find_largest(table)}
    how = METRICS[get_metric_name(key)].fold
    if how == SUM:
        return {key: np.where(np.isnan(table).all(axis=1), np.nan, np.nansum(table, axis=1)).astype(np.float32)}
    if how == LAST:
        return {key: _find_last(table)}
    if how == MASK:
        known = np.clip(np.nan_to_num(table, nan=0.0), 0, MAX_MASK)
        bits = np.bitwise_or.reduce(known.astype(np.uint32), axis=1).astype(np.float32)
        return {key: np.where(np.isnan(table).all(axis=1), np.float32(np.nan), bits)}
    known = (~np.isnan(table)).sum(axis=1)
    mean = np.divide(
        np.nansum(table, axis=1, dtype=np.float64), known, out=np.full(len(table), np.nan), where=known > 0
    )
    return {key: mean.astype(np.float32), make_peak_key(key): _find_largest(table)}


def make_peak_key(key: str) -> str:
    """Return the key of the largest values."""
    metric, colon, index = key.partition(":")
    return f"{metric}{PEAK_SUFFIX}{colon}{index}"


def _find_largest(table: Column) -> Column:
    found: Column = np.where(np.isnan(table), -np.inf, table).max(axis=1, initial=-np.inf).astype(np.float32)
    found[np.isneginf(found)] = np.nan
    return found


def _find_last(table: Column) -> Column:
    """Return the last known value of each row."""
    known = ~np.isnan(table)
    at = table.shape[1] - 1 - known[:, ::-1].argmax(axis=1)
    return table[np.arange(len(table)), at]
