"""Fewer points of a curve that show the same curve. Pure.

    points ──fold_points──▶ cells ─downsample_cells─▶ buckets of a grid ──▶ a line (means) in a band (lowest, highest)
                                                        └──────────build_band──▶ one band over several curves

A cell stands for one or more neighbouring points: it has their number, sum, lowest and highest value, and the steps
and times of the first and the last. Cells can be combined again without loss of any of these, so that a long curve is
read as few cells and shown as if all of its points had been read.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, TypeAlias

import numpy as np

Floats: TypeAlias = np.ndarray[Any, np.dtype[np.float64]]
Integers: TypeAlias = np.ndarray[Any, np.dtype[np.int64]]

MEAN_DIGITS = 7
"""Significant digits of means: single precision, in which most values are computed, has no more."""
LOW_QUANTILE, HIGH_QUANTILE = 0.25, 0.75
NOTHING: Floats = np.empty(0)


@dataclass(frozen=True, slots=True)
class Cells:
    """Cells of a curve, in the order of their steps; all arrays have one entry for each. Values that are not finite
    are in none: `counts` is at least 1."""

    first_steps: Integers
    last_steps: Integers
    first_times: Floats
    last_times: Floats
    sums: Floats
    lows: Floats
    highs: Floats
    counts: Integers

    def __len__(self) -> int:
        return len(self.counts)

    def select(self, chosen: Any) -> "Cells":
        """Return the cells at these indexes, or where this mask is true."""
        return Cells(*(getattr(self, one.name)[chosen] for one in fields(Cells)))


@dataclass(frozen=True, slots=True)
class Buckets:
    """A curve on a grid. `x` of a bucket with one point is that point's, else the bucket's middle, but within its
    points."""

    x: Floats
    means: Floats
    lows: Floats
    highs: Floats
    counts: Integers


@dataclass(frozen=True, slots=True)
class Band:
    """Several curves as one: at each `x` the mean, extremes and quartiles of those that have a value there."""

    x: Floats
    means: Floats
    lows: Floats
    highs: Floats
    low_quartiles: Floats
    high_quartiles: Floats
    counts: Integers


def fold_points(steps: Integers, times: Floats, values: Floats, size: int = 1) -> Cells:
    """Return cells of `size` points each; those that are not finite are left out. Steps ascend."""
    known = np.isfinite(values)
    if not known.all():
        steps, times, values = steps[known], times[known], values[known]
    if size == 1 or not len(values):
        return Cells(steps, steps, times, times, values, values, values, np.ones(len(values), np.int64))
    begins = np.arange(0, len(values), size)
    ends = np.append(begins[1:], len(values))
    return Cells(
        steps[begins],
        steps[ends - 1],
        np.minimum.reduceat(times, begins),
        np.maximum.reduceat(times, begins),
        np.add.reduceat(values, begins),
        np.minimum.reduceat(values, begins),
        np.maximum.reduceat(values, begins),
        ends - begins,
    )


def join_cells(parts: Sequence[Cells]) -> Cells:
    """Return the cells of all parts, one after the other."""
    if len(parts) == 1:
        return parts[0]
    if not parts:
        return fold_points(np.empty(0, np.int64), np.empty(0), np.empty(0))
    return Cells(*(np.concatenate([getattr(part, one.name) for part in parts]) for one in fields(Cells)))


def downsample_cells(x: Floats, cells: Cells, low: float, high: float, points: int) -> Buckets:
    """Return the cells on a grid of `points` buckets of equal width from `low` to `high`; empty buckets are left out.
    `x`: where the cells are on the axis. Curves on one grid have their middles in common."""
    if not len(cells):
        return Buckets(NOTHING, NOTHING, NOTHING, NOTHING, np.empty(0, np.int64))
    if np.any(x[1:] < x[:-1]):
        order = np.argsort(x, kind="stable")
        x, cells = x[order], cells.select(order)
    width = (high - low) / points
    places = np.zeros(len(x), np.int64) if width <= 0 else ((x - low) / width).astype(np.int64).clip(0, points - 1)
    begins = np.flatnonzero(np.append(True, places[1:] != places[:-1]))
    ends = np.append(begins[1:], len(x))
    counts = np.add.reduceat(cells.counts, begins)
    means = np.add.reduceat(cells.sums, begins) / counts
    middles = np.clip(low + (places[begins] + 0.5) * width, x[begins], x[ends - 1])
    return Buckets(
        middles,
        np.where(counts > 1, round_digits(means, MEAN_DIGITS), means),
        np.minimum.reduceat(cells.lows, begins),
        np.maximum.reduceat(cells.highs, begins),
        counts,
    )


def round_digits(values: Floats, digits: int) -> Floats:
    """Return the values with so many significant digits."""
    known = np.isfinite(values) & (values != 0)
    exponents = np.floor(np.log10(np.abs(np.where(known, values, 1.0))))
    scales = np.power(10.0, np.clip(digits - 1 - exponents, -300, 300))
    rounded: Floats = np.where(known, np.round(np.where(known, values, 0.0) * scales) / scales, values)
    return np.where(np.isfinite(rounded), rounded, values)


def smooth_values(values: Floats, weight: float) -> Floats:
    """Return the exponential moving average with `weight` from 0 (off) to below 1, divided by the sum of the weights
    so far: without this it would begin near zero. It is the smoothing of TensorBoard's scalar charts
    (`vz_line_chart`, `resmoothDataset`). Values that are not finite stay, and count for nothing."""
    found = np.array(values, np.float64)
    if weight <= 0:
        return found
    total = weights = 0.0
    for at, value in enumerate(found.tolist()):
        if not np.isfinite(value):
            continue
        total = weight * total + (1 - weight) * value
        weights = weight * weights + (1 - weight)
        found[at] = total / weights
    return found


def build_band(curves: Sequence[tuple[Floats, Floats]], low: float, high: float, points: int) -> Band:
    """Return the band of curves, each `(x, values)` with ascending x, on a grid from `low` to `high`. Between its own
    points a curve is a straight line; before the first and after the last it has no value."""
    grid = low + (np.arange(points) + 0.5) * ((high - low) / points) if high > low else np.array([low])
    table = np.full((max(1, len(curves)), len(grid)), np.nan)
    half = (high - low) / points / 2
    for row, (x, values) in zip(table, curves, strict=False):
        if len(x):
            row[:] = np.interp(grid, x, values)
            row[(grid < x[0] - half) | (grid > x[-1] + half)] = np.nan
    counts = np.isfinite(table).sum(axis=0)
    shown = counts > 0
    table, grid, counts = table[:, shown], grid[shown], counts[shown]
    if not len(grid):
        return Band(NOTHING, NOTHING, NOTHING, NOTHING, NOTHING, NOTHING, np.empty(0, np.int64))
    table = np.sort(table, axis=0)  # what is unknown comes last
    return Band(
        grid,
        round_digits(np.nansum(table, axis=0) / counts, MEAN_DIGITS),
        round_digits(table[0], MEAN_DIGITS),
        round_digits(table[counts - 1, np.arange(len(grid))], MEAN_DIGITS),
        round_digits(_find_quantile(table, counts, LOW_QUANTILE), MEAN_DIGITS),
        round_digits(_find_quantile(table, counts, HIGH_QUANTILE), MEAN_DIGITS),
        counts,
    )


def _find_quantile(table: Floats, counts: Integers, share: float) -> Floats:
    """Return a quantile of the first `counts` values of each sorted column, by linear interpolation. NumPy's
    `nanquantile` is a hundred times slower, as it goes through the columns one by one."""
    places = share * (counts - 1)
    below = np.floor(places).astype(np.int64)
    columns = np.arange(table.shape[1])
    low, high = table[below, columns], table[np.minimum(below + 1, counts - 1), columns]
    found: Floats = low + (places - below) * (high - low)
    return found
