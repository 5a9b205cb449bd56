"""Where curves part, on generated ones whose truth is known."""

import math
from collections.abc import Sequence

import numpy as np
import pytest

from fermi.runs import divergence
from fermi.runs.divergence import MIN_POINTS, SHORT_POINTS, Basis, Curve, Divergence, Verdict

STEPS = 2000
PAIRS = 100
Pairs = list[tuple[int, float]]


def find_divergence(left: Pairs, right: Pairs, sisters: Sequence[Pairs] = ()) -> Divergence:
    """Compare curves that are given as pairs of a step and its value."""
    return divergence.find_divergence(_build(left), _build(right), [_build(one) for one in sisters])


def _build(pairs: Pairs) -> Curve:
    return Curve(np.array([step for step, _ in pairs], np.int64), np.array([value for _, value in pairs], np.float64))


def make(
    seed: int, *, points: int = STEPS, noise: float = 0.05, correlation: float = 0.0, wander: float = 0.0,
    change_at: float | None = None, change: float = 0.0, slope: float = 0.0, spikes: bool = False,
) -> Pairs:  # fmt: skip
    """Return a loss curve with a power law, noise (an autoregression of first order), an offset of the seed's own that
    wanders slowly, and a change after a share of the steps: a jump, and a slope over the rest."""
    random = np.random.default_rng(seed)
    place = np.linspace(0.0, 1.0, points)
    steps = np.arange(1, points + 1) * 10
    values = 1.5 + 2.0 * (1 + 50 * place) ** -0.5
    white = random.normal(0.0, noise * np.sqrt(1 - correlation**2), points) * (1.0 + 2.0 * np.exp(-8 * place))
    for n in range(1, points):
        white[n] += correlation * white[n - 1]
    values = values + white + wander * np.cumsum(random.normal(0, 1, points)) / np.sqrt(points)
    if spikes:
        values[random.integers(0, points, points // 100)] += 2.0
    if change_at is not None:
        after = place >= change_at
        values = values + after * (change + slope * (place - change_at))
    return [*zip(steps.tolist(), values.tolist(), strict=True)]


@pytest.mark.parametrize("points", [MIN_POINTS, 40, SHORT_POINTS - 1, SHORT_POINTS, 400, STEPS])
@pytest.mark.parametrize(("correlation", "spikes"), [(0.0, False), (0.0, True), (0.5, False), (0.8, True)])
def test_curves_of_the_same_distribution_never_part(points: int, correlation: float, spikes: bool) -> None:
    parted = [
        seed for seed in range(PAIRS)
        if find_divergence(
            make(2 * seed, points=points, correlation=correlation, spikes=spikes),
            make(2 * seed + 1, points=points, correlation=correlation, spikes=spikes),
        ).verdict is Verdict.PARTED
    ]  # fmt: skip
    assert parted == []


@pytest.mark.parametrize("points", [MIN_POINTS, 60, SHORT_POINTS, 200])
def test_shares_of_right_answers_do_not_part(points: int) -> None:
    place = np.linspace(0.0, 1.0, points)
    parted = []
    for seed in range(PAIRS):
        random = np.random.default_rng(seed)
        share = 1 - 0.5 * np.exp(-6 * place)  # at last nearly all are right, so most neighbours are equal
        left, right = ([*enumerate((random.binomial(50, share) / 50).tolist())] for _ in range(2))
        parted += [seed] if find_divergence(left, right).verdict is Verdict.PARTED else []
    assert parted == []


@pytest.mark.parametrize("points", [MIN_POINTS, 60])
def test_of_two_short_curves_with_sister_runs_the_wandering_ones_stay_together(points: int) -> None:
    parted = []
    for pair in range(PAIRS):
        left, right, *others = (make(1000 * pair + n, points=points, wander=0.2) for n in range(4))
        found = find_divergence(left, right, [left, *others])
        assert (found.basis, found.sisters) == (Basis.SISTERS, 3)
        parted += [pair] if found.verdict is Verdict.PARTED else []
    assert parted == []


@pytest.mark.parametrize(("points", "change"), [(MIN_POINTS, 3.0), (30, 2.0), (60, 1.5), (SHORT_POINTS - 1, 1.0)])
@pytest.mark.parametrize("every", [1, 3])
def test_a_jump_of_a_short_curve_is_found_within_two_points_of_its_step(points: int, change: float, every: int) -> None:
    for seed in range(20):
        left = make(2 * seed, points=points)
        steps = [step for step, _ in left]
        right = make(2 * seed + 1, points=points, change_at=0.5, change=change)
        dense = [(step + shift, value) for step, value in right for shift in range(0, 10, 10 // every)]
        found = find_divergence(left, dense)
        assert (found.verdict, found.points) == (Verdict.PARTED, points)
        assert found.step is not None
        assert abs(steps.index(found.step) - points / 2) <= 2
        assert found.left is not None
        assert found.right is not None
        assert 0.7 * change < found.right - found.left < 1.3 * change


@pytest.mark.parametrize("sisters", [2, 3, 5])
def test_seeds_that_wander_do_not_part_where_sister_runs_say_that_they_do(sisters: int) -> None:
    parted = []
    for pair in range(PAIRS):
        left, right, *others = (make(1000 * pair + n, wander=0.2, correlation=0.5) for n in range(sisters + 1))
        found = find_divergence(left, right, [left, *others])
        assert (found.basis, found.sisters) == (Basis.SISTERS, sisters)
        parted += [pair] if found.verdict is Verdict.PARTED else []
    assert parted == []


@pytest.mark.parametrize(("correlation", "change"), [(0.0, 0.3), (0.5, 0.5)])
@pytest.mark.parametrize("at", [0.1, 0.5, 0.8])
def test_a_jump_is_found_within_three_percent_of_its_step(at: float, correlation: float, change: float) -> None:
    for seed in range(20):
        left = make(2 * seed, correlation=correlation)
        right = make(2 * seed + 1, correlation=correlation, change_at=at, change=change)
        found = find_divergence(left, right)
        assert found.verdict is Verdict.PARTED
        assert found.step is not None
        assert abs(found.step - at * STEPS * 10) <= 0.03 * STEPS * 10
        assert found.left is not None
        assert found.right is not None
        assert found.margin is not None
        assert 0.6 * change < found.right - found.left < 1.4 * change
        assert found.margin < change


def test_a_slow_change_is_found_once_it_exceeds_the_noise() -> None:
    for seed in range(20):
        found = find_divergence(make(2 * seed), make(2 * seed + 1, change_at=0.4, slope=1.0))
        assert found.step is not None
        assert 0.4 * STEPS * 10 <= found.step <= 0.55 * STEPS * 10


def test_the_values_that_are_named_differ_by_more_than_the_margin_that_is_named() -> None:
    for seed in range(10):
        found = find_divergence(make(2 * seed), make(2 * seed + 1, change_at=0.3, slope=2.0))
        assert found.left is not None
        assert found.right is not None
        assert found.margin is not None
        assert abs(found.right - found.left) > found.margin


def test_a_true_change_is_found_with_sister_runs() -> None:
    for seed in range(20):
        left, right = make(100 * seed, wander=0.02), make(100 * seed + 1, wander=0.02, change_at=0.5, change=0.6)
        found = find_divergence(left, right, [left, *(make(100 * seed + n, wander=0.02) for n in range(2, 6))])
        assert found.basis is Basis.SISTERS
        assert found.step is not None
        assert abs(found.step - 0.5 * STEPS * 10) <= 0.03 * STEPS * 10


def test_runs_that_repeat_another_one_say_nothing_of_what_a_seed_does() -> None:
    left, right, sister = make(1, wander=0.2), make(2, wander=0.2), make(3, wander=0.2)
    found = find_divergence(left, right, [left, left, sister, left, sister])
    assert (found.basis, found.sisters) == (Basis.SISTERS, 2)
    assert found == find_divergence(left, right, [left, sister])
    assert find_divergence(left, right, [left, left, left]).basis is Basis.OWN


def test_noise_that_two_runs_have_in_common_hides_no_change_beside_sister_runs() -> None:
    batches = np.random.default_rng(9).normal(0, 0.3, STEPS)

    def add(curve: Curve) -> Curve:
        return [(step, value + noise) for (step, value), noise in zip(curve, batches, strict=True)]

    left, right = add(make(1, noise=0.01)), add(make(2, noise=0.01, change_at=0.5, change=0.1))
    sisters = [left, *(add(make(seed, noise=0.01)) for seed in range(3, 7))]
    assert find_divergence(left, right).step is None
    found = find_divergence(left, right, sisters)
    assert found.step is not None
    assert abs(found.step - 0.5 * STEPS * 10) <= 0.03 * STEPS * 10


def test_nothing_is_claimed_of_too_few_points() -> None:
    left, right = make(1, points=MIN_POINTS - 1), make(2, points=MIN_POINTS - 1, change_at=0.0, change=9.0)
    assert find_divergence(left, right).verdict is Verdict.TOO_FEW
    assert find_divergence([], []).verdict is Verdict.TOO_FEW
    assert find_divergence(left, []).verdict is Verdict.TOO_FEW
    far = [(step + 10**6, value) for step, value in make(3)]
    assert find_divergence(make(4), far).verdict is Verdict.TOO_FEW


def test_the_same_values_are_the_same_until_they_differ() -> None:
    left = make(5)
    right = [(step, value + (0.5 if step > 5000 else 0.0)) for step, value in left]
    found = find_divergence(left, right)
    assert found.identical_until == 5000
    assert found.step is not None
    assert abs(found.step - 5000) <= 200
    whole = find_divergence(left, left)
    assert (whole.verdict, whole.identical_until) == (Verdict.TOGETHER, left[-1][0])


def test_curves_may_have_other_steps_repeated_ones_and_values_that_are_no_numbers() -> None:
    left = make(6)
    right = [*make(7, change_at=0.5, change=0.5)[::3], (10, float("nan")), (20, float("inf"))]
    found = find_divergence([*left, *left[100:200]], right)
    assert found.step is not None
    assert abs(found.step - 0.5 * STEPS * 10) <= 0.03 * STEPS * 10


def test_a_constant_curve_has_no_noise() -> None:
    flat = [(step, 1.0) for step in range(1, 101)]
    assert find_divergence(flat, flat).verdict is Verdict.TOGETHER
    changed = [(step, 1.0 if step <= 50 else 1.5) for step in range(1, 101)]
    found = find_divergence(flat, changed)
    assert found.verdict is Verdict.PARTED
    assert found.step is not None
    assert 45 <= found.step <= 55


@pytest.mark.parametrize("points", [40, 80, 120, 400, 2000])
def test_what_a_curve_falls_by_is_no_noise(points: int) -> None:
    random = np.random.default_rng(points)

    def fall(rate: float) -> list[tuple[int, float]]:
        noise = random.random(points) * 0.05
        return [(step, 3 * math.exp(-rate * step * 120 / points) + noise[step]) for step in range(points)]

    assert find_divergence(fall(0.04), fall(0.02)).verdict is Verdict.PARTED
    assert find_divergence(fall(0.04), fall(0.04)).verdict is Verdict.TOGETHER
