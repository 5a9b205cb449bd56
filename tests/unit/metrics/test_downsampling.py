"""Curves of fewer points that show the same as all of them."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fermi.metrics.downsampling import (
    build_band,
    downsample_cells,
    fold_points,
    join_cells,
    round_digits,
    smooth_values,
)
from tests.sampling import examples

VALUES = st.lists(st.floats(-1e6, 1e6, allow_nan=False), min_size=1, max_size=300)


def make_points(values):
    steps = np.arange(len(values), dtype=np.int64) * 10
    return steps, steps / 2.0, np.array(values, np.float64)


@settings(max_examples=examples(100))
@given(values=VALUES, size=st.integers(1, 40), points=st.integers(1, 50))
def test_a_curve_of_cells_has_the_extremes_the_number_and_the_sum_of_all_points(values, size, points):
    steps, times, numbers = make_points(values)
    cells = fold_points(steps, times, numbers, size)
    found = downsample_cells(cells.first_steps.astype(float), cells, 0, float(steps[-1]), points)
    assert len(found.x) <= points
    assert found.lows.min() == numbers.min()
    assert found.highs.max() == numbers.max()
    assert found.counts.sum() == len(numbers)
    assert math.isclose((found.means * found.counts).sum(), numbers.sum(), rel_tol=1e-5, abs_tol=1e-1)
    assert (found.lows <= found.highs).all()
    assert (np.diff(found.x) > 0).all()


def test_a_single_extreme_among_many_points_is_kept():
    steps, times, numbers = make_points(np.zeros(100_000))
    numbers[54_321] = 7.0
    cells = fold_points(steps, times, numbers, 32)
    found = downsample_cells((cells.first_steps + cells.last_steps) / 2, cells, 0, float(steps[-1]), 500)
    assert found.highs.max() == 7.0
    assert abs(found.x[found.highs.argmax()] - 543_210) <= 1e6 / 500


def test_few_points_are_answered_as_they_are():
    steps, times, numbers = make_points([3.0, 1 / 3, 2.0])
    found = downsample_cells(steps.astype(float), fold_points(steps, times, numbers), 0, 20, 100)
    assert found.x.tolist() == [0, 10, 20]
    assert found.means.tolist() == [3.0, 1 / 3, 2.0]


def test_curves_on_one_grid_have_their_places_in_common():
    found = []
    for shift in (0, 3):
        steps, times, numbers = make_points(np.arange(1000.0))
        cells = fold_points(steps + shift, times, numbers)
        found.append(downsample_cells(cells.first_steps.astype(float), cells, 0, 10_000, 50))
    assert found[0].x.tolist() == found[1].x.tolist()


def test_values_that_are_not_finite_are_in_no_cell():
    steps, times, numbers = make_points([1.0, math.nan, 3.0, math.inf])
    cells = fold_points(steps, times, numbers, 2)
    assert cells.counts.tolist() == [2]
    assert cells.last_steps.tolist() == [20]
    assert len(fold_points(steps, times, np.full(4, math.nan), 2)) == 0


def test_a_curve_without_points_has_no_buckets():
    assert len(downsample_cells(np.empty(0), join_cells([]), 0, 1, 10).x) == 0


def test_a_curve_of_one_moment_is_one_bucket():
    steps, times, numbers = make_points([1.0, 2.0])
    found = downsample_cells(np.array([5.0, 5.0]), fold_points(steps, times, numbers), 5, 5, 10)
    assert found.x.tolist() == [5.0]
    assert found.means.tolist() == [1.5]


def test_points_out_of_order_on_the_axis_are_sorted():
    steps, times, numbers = make_points([1.0, 2.0, 3.0])
    found = downsample_cells(np.array([2.0, 0.0, 1.0]), fold_points(steps, times, numbers), 0, 2, 10)
    assert found.x.tolist() == [0, 1, 2]
    assert found.means.tolist() == [2.0, 3.0, 1.0]


def test_smoothing_begins_at_the_first_value_and_keeps_a_constant():
    assert smooth_values(np.array([4.0, 4.0, 4.0]), 0.9) == pytest.approx([4.0, 4.0, 4.0])
    assert smooth_values(np.array([1.0, 2.0]), 0.5) == pytest.approx([1.0, (0.25 + 1.0) / 0.75])
    assert smooth_values(np.array([1.0, 2.0]), 0).tolist() == [1.0, 2.0]
    assert smooth_values(np.array([1.0, math.nan, 2.0]), 0.5)[2] == pytest.approx((0.25 + 1.0) / 0.75)


def test_a_band_has_at_each_place_only_the_curves_that_reach_it():
    x = np.arange(11.0)
    band = build_band([(x, np.zeros(11)), (x[:6], np.full(6, 2.0))], 0, 10, 10)
    assert band.counts.tolist() == [2] * 6 + [1] * 4
    assert band.means.tolist() == [1.0] * 6 + [0.0] * 4
    assert band.lows.tolist() == [0.0] * 10
    assert band.highs.tolist() == [2.0] * 6 + [0.0] * 4
    assert band.low_quartiles[0] == 0.5
    assert band.high_quartiles[0] == 1.5
    assert len(build_band([], 0, 10, 10).x) == 0


def test_the_quartiles_of_a_band_are_those_of_the_curves_that_are_there():
    rng = np.random.default_rng(1)
    curves = [(np.arange(0.0, 20), rng.normal(size=20)), *((np.arange(0.0, 9), rng.normal(size=9)) for _ in range(6))]
    band = build_band(curves, 0, 19, 40)
    table = np.full((7, 40), np.nan)
    for row, (x, values) in zip(table, curves, strict=True):
        row[:] = np.interp(band.x, x, values)
        row[band.x > x[-1] + 19 / 80] = np.nan
    assert band.low_quartiles == pytest.approx(np.nanquantile(table, 0.25, axis=0), rel=1e-5)
    assert band.high_quartiles == pytest.approx(np.nanquantile(table, 0.75, axis=0), rel=1e-5)
    assert band.highs == pytest.approx(np.nanmax(table, axis=0), rel=1e-5)


def test_digits_are_significant_ones():
    given = np.array([123456789.0, 0.000123456789, 0.0, -1.5, math.nan])
    assert round_digits(given, 3)[:4].tolist() == [123000000.0, 0.000123, 0.0, -1.5]
    assert math.isnan(round_digits(given, 3)[4])
