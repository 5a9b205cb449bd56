"""Tells at which step two curves part beyond their noise. Pure.

Both curves are averaged in the same buckets of steps. They have parted where the averages differ by more than
a number of standard deviations, on the same side, in `RUN_BUCKETS` buckets one after the other. The deviation of a
bucket's average is

    with sister runs     the spread of their averages: runs that differ in the seed alone part by as much
    without them         what the curve's own points say of it, from differences of neighbours: of all that makes two
                         seeds part, this is the short-range share alone

The own deviation counts in both cases where it is larger; beside sister runs it is that of the difference of the two,
as two runs that read the same batches have most of their noise in common. Runs that repeat another one to the last
digit say nothing of the spread, and count once. Averages of neighbours are correlated, so it is computed in
two ways, and the larger one counts: from differences of points one and two steps apart, as for an autoregression of
first order, D1 = 2 s^2 (1 - r), D2 = 2 s^2 (1 - r^2); and from second differences of averages, whose variance is
6 v for independent ones. Medians are used throughout, as curves have spikes.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, TypeAlias

import numpy as np

MIN_POINTS, MAX_POINTS = 40, 20_000
"""Of each curve, in the range of steps that both have. Of longer ones every second, third, … point counts."""
MAX_BUCKETS, MIN_BUCKETS, MIN_BUCKET_POINTS = 128, 10, 4
RUN_BUCKETS = 5
OWN_MARGIN_FACTOR = 5.0
MIN_IDENTICAL_POINTS = 10
MAX_SISTERS = 20
MAX_CORRELATION = 0.95
WINDOW_BUCKETS = 8
"""On each side: deviations change while a model is trained, and one bucket alone has too few points."""
_MAD = 0.6745
"""Median of |x| of a normal distribution with the standard deviation 1."""

Curve: TypeAlias = Sequence[tuple[int, float]]
"""Steps with values; of a step that occurs several times the last value counts."""


class Verdict(StrEnum):
    """What can be claimed of two curves."""

    PARTED = "parted"
    TOGETHER = "together"
    TOO_FEW = "too_few"


class Basis(StrEnum):
    """What the noise is known from."""

    SISTERS = "sisters"
    OWN = "own"


@dataclass(frozen=True, slots=True)
class Divergence:
    """The result. `step`: where the curves part; `left`, `right`: averages where they first differ by more than
    `margin`; all None unless they have parted. `points`: of the curve that has fewer, in the range that both have.
    `sisters`: how many runs the noise is known from. `identical_until`: the last step up to which all values are the
    same, where at least MIN_IDENTICAL_POINTS are."""

    verdict: Verdict
    basis: Basis
    points: int
    sisters: int = 0
    step: int | None = None
    left: float | None = None
    right: float | None = None
    margin: float | None = None
    identical_until: int | None = None


def find_divergence(left: Curve, right: Curve, sisters: Sequence[Curve] = ()) -> Divergence:
    """Return where two curves part. `sisters`: curves of runs with the configuration of one of the two, that differ
    from it in the seed alone, and that curve itself; fewer than two that differ say nothing."""
    curves = [_sort(left), _sort(right)]
    same = _find_identical(*curves)
    low = max(curve[0][0] if len(curve[0]) else 0 for curve in curves)
    high = min(curve[0][-1] if len(curve[0]) else -1 for curve in curves)
    cut = [_thin(_cut(curve, low, high)) for curve in curves]
    points = min(len(steps) for steps, _ in cut)
    if points < MIN_POINTS:
        return Divergence(Verdict.TOO_FEW, Basis.OWN, points, identical_until=same)
    count = max(MIN_BUCKETS, min(MAX_BUCKETS, points // MIN_BUCKET_POINTS))
    edges = np.linspace(low, high + 1, count + 1)
    means = [_average(curve, edges) for curve in cut]
    deviation = np.sqrt(sum(_estimate_variance(*pair) for pair in zip(cut, means, strict=True)))
    averages = [_average(_cut(_sort(one), low, high), edges) for one in sisters[:MAX_SISTERS]]
    distinct = _drop_repeated(averages)
    spread = _measure_spread(distinct)
    basis, known, margin = Basis.OWN, 0, OWN_MARGIN_FACTOR * deviation
    if spread is not None:
        basis, known = Basis.SISTERS, len(distinct)
        if np.array_equal(cut[0][0], cut[1][0]):
            difference = cut[0][0], cut[1][1] - cut[0][1]
            deviation = np.sqrt(_estimate_variance(difference, means[1] - means[0]))
        margin = np.maximum(OWN_MARGIN_FACTOR * deviation, compute_margin_factor(known) * spread)
    places = _find_run(means[1] - means[0], margin)
    if places is None:
        return Divergence(Verdict.TOGETHER, basis, points, known, identical_until=same)
    at, inside = places
    step = next((int(step) for step in cut[0][0] if step >= edges[at]), int(edges[at]))
    values = float(means[0][inside]), float(means[1][inside]), float(margin[inside])
    return Divergence(Verdict.PARTED, basis, points, known, step, *values, same)


def compute_margin_factor(sisters: int) -> float:
    """Return by how many deviations of a pair two curves must differ: a spread of few runs is itself uncertain."""
    return 4.0 * (1.0 + 2.0 / (sisters - 1)) * math.sqrt(2.0)


def _sort(curve: Curve) -> tuple[Any, Any]:
    """Return steps and values, ascending, each step once, finite values alone."""
    known = {step: value for step, value in curve if math.isfinite(value)}
    steps = sorted(known)
    return np.array(steps, dtype=np.int64), np.array([known[step] for step in steps], dtype=np.float64)


def _cut(curve: tuple[Any, Any], low: int, high: int) -> tuple[Any, Any]:
    steps, values = curve
    inside = (steps >= low) & (steps <= high)
    return steps[inside], values[inside]


def _thin(curve: tuple[Any, Any]) -> tuple[Any, Any]:
    every = -(-len(curve[0]) // MAX_POINTS) or 1
    return curve[0][::every], curve[1][::every]


def _find_identical(left: tuple[Any, Any], right: tuple[Any, Any]) -> int | None:
    """Return the last of the first steps at which both have the same values."""
    length = min(len(left[0]), len(right[0]))
    same = (left[0][:length] == right[0][:length]) & (left[1][:length] == right[1][:length])
    count = length if same.all() else int(np.argmin(same))
    return int(left[0][count - 1]) if count >= MIN_IDENTICAL_POINTS else None


def _average(curve: tuple[Any, Any], edges: Any) -> Any:
    """Return the average of each bucket; one without points has NaN."""
    places = np.clip(np.searchsorted(edges, curve[0], side="right") - 1, 0, len(edges) - 2)
    counts = np.bincount(places, minlength=len(edges) - 1)
    sums = np.bincount(places, weights=curve[1], minlength=len(edges) - 1)
    return np.divide(sums, counts, out=np.full(len(counts), np.nan), where=counts > 0)


def _estimate_variance(curve: tuple[Any, Any], means: Any) -> Any:
    """Return the variance of each bucket's average."""
    values, count = curve[1], len(means)
    per_bucket = max(1.0, len(values) / count)
    slopes = _measure_slopes(values[1:] - values[:-1], per_bucket, count)
    first = np.abs(values[1:] - values[:-1] - slopes)
    second = np.abs(values[2:] - values[:-2] - slopes[1:] - slopes[:-1])
    from_points = np.empty(count)
    curvature = np.abs(means[2:] - 2 * means[1:-1] + means[:-2])
    curvature = curvature[np.isfinite(curvature)]
    overall = _measure_square(curvature) / 6.0 if len(curvature) else 0.0
    correlation = _measure_square(second) / max(_measure_square(first), 1e-300) - 1.0
    correlation = min(max(correlation, 0.0), MAX_CORRELATION)
    for bucket in range(count):
        begin = int((bucket - WINDOW_BUCKETS) * per_bucket)
        near = first[max(0, begin) : int((bucket + WINDOW_BUCKETS + 1) * per_bucket)]
        variance = _measure_square(near) / (2.0 * (1.0 - correlation))
        from_points[bucket] = variance / per_bucket * (1.0 + correlation) / (1.0 - correlation)
    scale = from_points / max(float(np.median(from_points)), 1e-300)
    return np.maximum(from_points, overall * scale)


def _measure_slopes(differences: Any, per_bucket: float, count: int) -> Any:
    """Return the slope of the curve at each difference of neighbours: the median of those around it. What a curve falls
    by is no noise."""
    centres = (np.arange(count) + 0.5) * per_bucket
    reach = (WINDOW_BUCKETS + 0.5) * per_bucket
    medians = [np.median(differences[max(0, int(at - reach)) : int(at + reach)]) for at in centres]
    return np.interp(np.arange(len(differences)), centres, medians)


def _measure_square(differences: Any) -> float:
    """Return the mean square of normal differences with this median."""
    return float((np.median(differences) / _MAD) ** 2) if len(differences) else 0.0


def _drop_repeated(averages: list[Any]) -> list[Any]:
    """Return those that differ from all before them."""
    found: list[Any] = []
    for one in averages:
        if not any(np.array_equal(one, other, equal_nan=True) for other in found):
            found.append(one)
    return found


def _measure_spread(means: list[Any]) -> Any:
    """Return the standard deviation among sister runs by bucket, averaged over neighbours; None of fewer than two."""
    usable = [one for one in means if np.isfinite(one).mean() > 0.5]
    if len(usable) < 2:
        return None
    filled = np.array([_fill_gaps(one) for one in usable])
    squares = filled.var(axis=0, ddof=1)
    if len(filled) == 2:  # their difference may be small anywhere by chance
        squares = np.full(len(squares), squares.mean())
    window = np.ones(2 * WINDOW_BUCKETS + 1)
    weights = np.convolve(np.ones(len(squares)), window, mode="same")
    return np.sqrt(np.convolve(squares, window, mode="same") / weights)


def _fill_gaps(values: Any) -> Any:
    known = np.isfinite(values)
    places = np.arange(len(values))
    return np.interp(places, places[known], values[known])


def _find_run(difference: Any, margin: Any) -> tuple[int, int] | None:
    """Return the bucket in which the curves begin to differ, and one in which they do: behind the first they exceed the
    margin on one side in RUN_BUCKETS buckets one after the other, and from it on half of it. Buckets without points are
    skipped."""
    known = np.flatnonzero(np.isfinite(difference) & np.isfinite(margin))
    values = difference[known]
    bounds = np.maximum(margin[known], 1e-12)
    sides = np.where(np.abs(values) > bounds, np.sign(values), 0)
    run = 0
    for place, side in enumerate(sides):
        run = 0 if side == 0 else run + 1 if place and side == sides[place - 1] else 1
        if run >= RUN_BUCKETS:
            begin = place - RUN_BUCKETS + 1
            inside = begin + RUN_BUCKETS // 2  # the first bucket may lie partly before the change
            while begin and values[begin - 1] * side > bounds[begin - 1] / 2:
                begin -= 1
            return int(known[begin]), int(known[inside])
    return None
