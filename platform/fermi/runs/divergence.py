"""Tells at which step two curves part beyond their noise. Pure.

Both curves are averaged in the same buckets of steps. They have parted where the averages differ by more than
a number of standard deviations, on the same side, in `RUN_BUCKETS` buckets one after the other. The deviation of a
bucket's average is

    with sister runs     the spread of their averages: runs that differ in the seed alone part by as much
    without them         what the curve's own points say of it, from differences of neighbours: of all that makes two
                         seeds part, this is the short-range share alone

The own deviation counts in both cases where it is larger; beside sister runs it is that of the difference of the two,
as two runs that read the same batches have most of their noise in common. Runs that repeat another one to the last
digit say nothing of the spread, and count once. Of fewer than `SHORT_POINTS` points there are too few for averages;
then the differences of the two curves at the same steps are what is compared, and their noise is that of the
differences of these differences, in which what both curves fall by cancels (`_estimate_short`).

Averages of neighbours are correlated, so their deviation is computed in two ways, and the larger one counts: from
differences of points one and two steps apart, as for an autoregression of first order, D1 = 2 s^2 (1 - r),
D2 = 2 s^2 (1 - r^2); and from second differences of averages, whose variance is 6 v for independent ones. Medians are
used throughout, as curves have spikes.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, TypeAlias

import numpy as np

from fermi.metrics.downsampling import Floats, Integers

MIN_POINTS, SHORT_POINTS, MAX_POINTS = 20, 120, 20_000
"""Of each curve, in the range of steps that both have. Of longer ones every second, third, … point counts."""
MAX_BUCKETS, MIN_BUCKETS, MIN_BUCKET_POINTS = 128, 10, 4
RUN_BUCKETS = 5
OWN_MARGIN_FACTOR = 5.0
SHORT_MARGIN_FACTOR, SHORT_UNCERTAINTY = 5.5, 12.0
"""The factor for a short curve grows by SHORT_UNCERTAINTY / points: its deviation is estimated from few."""
SHORT_LAGS = (1, 2, 4, 8)
"""Distances of points whose differences estimate the deviation of a short curve, at most a quarter of it: correlated
points differ less the nearer they are."""
MIN_IDENTICAL_POINTS = 10
MAX_SISTERS = 20
MAX_CORRELATION = 0.95
WINDOW_BUCKETS = 8
"""On each side: deviations change while a model is trained, and one bucket alone has too few points."""
TRIMMED_SHARE = 0.8
_MAD = 0.6745
"""Median of |x| of a normal distribution with the standard deviation 1."""


@dataclass(frozen=True, slots=True, eq=False)
class Curve:
    """Steps with values, in any order; of a step that occurs several times the last value counts."""

    steps: Integers
    values: Floats


_Sorted: TypeAlias = tuple[Integers, Floats]


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
    if points < SHORT_POINTS:
        return _compare_points(cut, sisters, same)
    return _compare_buckets(cut, int(low), int(high), sisters, same)


def _compare_buckets(
    curves: Sequence[_Sorted], low: int, high: int, sisters: Sequence[Curve], same: int | None
) -> Divergence:
    """Compare averages over buckets of steps."""
    points = min(len(steps) for steps, _ in curves)
    count = max(MIN_BUCKETS, min(MAX_BUCKETS, points // MIN_BUCKET_POINTS))
    edges = np.linspace(low, high + 1, count + 1)
    means = [_average(curve, edges) for curve in curves]
    others = _drop_repeated([_average(_cut(_sort(one), low, high), edges) for one in sisters[:MAX_SISTERS]])
    spread = _measure_spread(others)
    if spread is not None and np.array_equal(curves[0][0], curves[1][0]):
        variance = _estimate_variance((curves[0][0], curves[1][1] - curves[0][1]), means[1] - means[0])
    else:
        variance = sum(_estimate_variance(*pair) for pair in zip(curves, means, strict=True))
    margin, basis, known = _widen(OWN_MARGIN_FACTOR * np.sqrt(variance), spread, len(others))
    places = _find_run(means[1] - means[0], margin)
    if places is None:
        return Divergence(Verdict.TOGETHER, basis, points, known, identical_until=same)
    at, inside = places
    step = next((int(step) for step in curves[0][0] if step >= edges[at]), int(edges[at]))
    values = float(means[0][inside]), float(means[1][inside]), float(margin[inside])
    return Divergence(Verdict.PARTED, basis, points, known, step, *values, same)


def _compare_points(curves: Sequence[_Sorted], sisters: Sequence[Curve], same: int | None) -> Divergence:
    """Compare points, at the steps of the curve that has fewer."""
    steps = min((steps for steps, _ in curves), key=len)
    left, right = (np.interp(steps, *curve) for curve in curves)
    factor = SHORT_MARGIN_FACTOR * (1.0 + SHORT_UNCERTAINTY / len(steps))
    others = _drop_repeated([_interpolate(_sort(one), steps) for one in sisters[:MAX_SISTERS]])
    margin, basis, known = _widen(factor * _estimate_short(right - left), _measure_spread(others), len(others))
    places = _find_run(right - left, margin)
    if places is None:
        return Divergence(Verdict.TOGETHER, basis, len(steps), known, identical_until=same)
    at, inside = places
    behind = slice(inside - RUN_BUCKETS // 2, inside + RUN_BUCKETS // 2 + 1)
    values = float(left[behind].mean()), float(right[behind].mean()), float(margin[behind].mean())
    return Divergence(Verdict.PARTED, basis, len(steps), known, int(steps[at]), *values, same)


def _widen(margin: Floats, spread: Any, sisters: int) -> tuple[Floats, Basis, int]:
    """Return the margin, where the spread of so many sister runs is known at least by that; from what it is known, and
    from how many runs."""
    if spread is None:
        return margin, Basis.OWN, 0
    return np.maximum(margin, compute_margin_factor(sisters) * spread), Basis.SISTERS, sisters


def compute_margin_factor(sisters: int) -> float:
    """Return by how many deviations of a pair two curves must differ: a spread of few runs is itself uncertain."""
    return 4.0 * (1.0 + 2.0 / (sisters - 1)) * math.sqrt(2.0)


def _sort(curve: Curve) -> _Sorted:
    """Return steps and values, ascending, each step once, finite values alone."""
    known = np.isfinite(curve.values)
    steps, values = curve.steps[known], curve.values[known]
    order = np.argsort(steps, kind="stable")
    steps, values = steps[order], values[order]
    last = np.append(steps[1:] != steps[:-1], np.ones(min(1, len(steps)), bool))
    return steps[last], values[last]


def _cut(curve: _Sorted, low: int, high: int) -> _Sorted:
    steps, values = curve
    inside = (steps >= low) & (steps <= high)
    return steps[inside], values[inside]


def _thin(curve: _Sorted) -> _Sorted:
    every = -(-len(curve[0]) // MAX_POINTS) or 1
    return curve[0][::every], curve[1][::every]


def _find_identical(left: _Sorted, right: _Sorted) -> int | None:
    """Return the last of the first steps at which both have the same values."""
    length = min(len(left[0]), len(right[0]))
    same = (left[0][:length] == right[0][:length]) & (left[1][:length] == right[1][:length])
    count = length if same.all() else int(np.argmin(same))
    return int(left[0][count - 1]) if count >= MIN_IDENTICAL_POINTS else None


def _average(curve: _Sorted, edges: Any) -> Any:
    """Return the average of each bucket; one without points has NaN."""
    places = np.clip(np.searchsorted(edges, curve[0], side="right") - 1, 0, len(edges) - 2)
    counts = np.bincount(places, minlength=len(edges) - 1)
    sums = np.bincount(places, weights=curve[1], minlength=len(edges) - 1)
    return np.divide(sums, counts, out=np.full(len(counts), np.nan), where=counts > 0)


def _estimate_variance(curve: _Sorted, means: Any) -> Any:
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


def _estimate_short(differences: Floats) -> Floats:
    """Return the standard deviation of the differences of two short curves, at each of them. It is the largest of what
    points at some distances say, and larger where neighbours differ more than elsewhere."""
    count = len(differences)
    near = _measure_lag(differences, 1)
    whole = max(_measure_lag(differences, lag) for lag in SHORT_LAGS if lag <= count // 4)
    reach = count // 6
    local = np.array([_measure_lag(differences[max(0, at - reach) : at + reach + 1], 1) for at in range(count)])
    return whole * np.maximum(1.0, local / max(near, 1e-300))


def _measure_lag(values: Floats, lag: int) -> float:
    """Return the standard deviation that points at this distance say; what they rise by steadily is no noise."""
    found = values[lag:] - values[:-lag]
    found = np.abs(found - np.median(found))
    square = _measure_square(found) if lag == 1 else (float(np.median(found)) / _MAD) ** 2
    return math.sqrt(square / 2.0)


def _interpolate(curve: _Sorted, steps: Integers) -> Floats:
    """Return the curve at the steps; NaN where it is not."""
    if not len(curve[0]):
        return np.full(len(steps), np.nan)
    return np.interp(steps, *curve, left=np.nan, right=np.nan)


def _measure_slopes(differences: Any, per_bucket: float, count: int) -> Any:
    """Return the slope of the curve at each difference of neighbours: the median of those around it. What a curve falls
    by is no noise."""
    centres = (np.arange(count) + 0.5) * per_bucket
    reach = (WINDOW_BUCKETS + 0.5) * per_bucket
    medians = [np.median(differences[max(0, int(at - reach)) : int(at + reach)]) for at in centres]
    return np.interp(np.arange(len(differences)), centres, medians)


def _measure_square(differences: Any) -> float:
    """Return the mean square of normal differences with this median, and at least that of most of them: of a curve that
    seldom changes the median is zero."""
    if not len(differences):
        return 0.0
    most = np.sort(differences)[: max(1, int(TRIMMED_SHARE * len(differences)))]
    return float(max((np.median(differences) / _MAD) ** 2, np.mean(most**2)))


def _drop_repeated(curves: Sequence[Floats]) -> list[Floats]:
    """Return those that differ from all before them."""
    found: list[Floats] = []
    for one in curves:
        if not any(np.array_equal(one, other, equal_nan=True) for other in found):
            found.append(one)
    return found


def _measure_spread(means: Sequence[Floats]) -> Any:
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
