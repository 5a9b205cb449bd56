"""Losses, point by point: what is bad is told, and no healthy run ever is."""

import json
import math
import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from fermi import messages
from fermi.diagnosis import Finding, Level, loss_anomalies
from fermi.diagnosis.loss_anomalies import CERTAIN_POINTS, JUMPED, NOT_FINITE, STUCK, SUSTAINED_POINTS, Resolved


def find_anomalies(
    points: list[float | None], name: str = "loss", state: dict[str, Any] | None = None
) -> list[Finding | Resolved]:
    """With what is remembered stored after each point, as a transaction might."""
    state, found = state or {}, []
    for step, value in enumerate(points, 1):
        found += loss_anomalies.check_point(state, step, {name: value, "lr": 0.1})
        state = json.loads(json.dumps(state))
    return found


def codes(found: list[Finding | Resolved]) -> list[tuple[str, str]]:
    return [(one.code, one.level if isinstance(one, Finding) else "over") for one in found]


def falling(
    chance: random.Random, points: int, start: float = 10.0, to: float = 2.5, noise: float = 0.02
) -> list[float]:
    pace = chance.uniform(0.02, 0.1)
    return [(to + (start - to) * math.exp(-pace * i)) * math.exp(chance.gauss(0, noise)) for i in range(points)]


Healthy = Callable[[random.Random], list[float]]


def noisy(chance: random.Random) -> list[float]:
    """Batches of one: some are ten times harder than others."""
    return falling(chance, 400, chance.uniform(1, 11), chance.uniform(0.01, 0.9), chance.uniform(0.3, 1.0))


def stepwise(chance: random.Random) -> list[float]:
    """The learning rate is divided by ten twice; what is left is small and even."""
    run = falling(chance, 150, 2.3, 0.8)
    run += [0.35 * math.exp(chance.gauss(0, 0.05)) for _ in range(100)]
    return run + [0.05 * math.exp(chance.gauss(0, 0.01)) for _ in range(150)]


def cyclic(chance: random.Random) -> list[float]:
    """Warm restarts of the learning rate: each cycle begins with up to a third of what was gained lost again."""
    run, start = [], 2.3
    for cycle in range(5):
        low = 0.4 / (cycle + 1)
        top = start if cycle == 0 else low + chance.uniform(0.1, 0.33) * (start - low)
        run += [(low + (top - low) * math.exp(-0.05 * i)) * math.exp(chance.gauss(0, 0.05)) for i in range(90)]
    return run


def warming_up(chance: random.Random) -> list[float]:
    """Spikes while the learning rate rises, of some points each."""
    run = falling(chance, 300, 10.8, 3.0)
    for _ in range(4):
        at, height, length = chance.randrange(5, 70), chance.uniform(0.5, 4.0), chance.randrange(1, 8)
        for i in range(length):
            run[at + i] += height * (1 - i / length)
    return run


def curriculum(chance: random.Random) -> list[float]:
    """Harder data from the middle on."""
    run = falling(chance, 200, 10.8, 1.8)
    return run + [chance.uniform(2.3, 3.5) * math.exp(chance.gauss(0, 0.02)) for _ in range(200)]


def fine_tuning(chance: random.Random) -> list[float]:
    return falling(chance, 250, chance.uniform(1.5, 2.5), chance.uniform(1.0, 1.4), 0.1)


def policy(chance: random.Random) -> list[float]:
    """Around zero, of both signs, with heavy tails and a scale that drifts."""
    scale, run = 0.02, []
    for _ in range(600):
        scale *= math.exp(chance.gauss(0, 0.02))
        run.append(scale * chance.gauss(0, 1) / max(chance.random(), 0.05))
    return run


def adversarial(chance: random.Random) -> list[float]:
    """A critic's: below zero, wandering, and back."""
    level, run = 0.0, []
    for _ in range(600):
        level = 0.99 * level + chance.gauss(-0.01, 0.15)
        run.append(level + chance.gauss(0, 0.3))
    return run


def constant(chance: random.Random) -> list[float]:
    """Nothing is learnt before the buffer is full."""
    return [0.0] * chance.randrange(20, 200) + [chance.uniform(0.2, 0.4) for _ in range(200)]


def spiking(chance: random.Random) -> list[float]:
    """Single bad batches, far apart."""
    run = falling(chance, 500, 10.8, 2.5)
    for at in range(60, 500, 40):
        for i in range(chance.randrange(1, 5)):
            run[at + i] *= chance.uniform(1.5, 4)
    return run


KINDS: list[Healthy] = [
    noisy, stepwise, cyclic, warming_up, curriculum, fine_tuning, policy, adversarial, constant, spiking,
]  # fmt: skip


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_healthy_runs_raise_no_alarm(kind: Healthy) -> None:
    for seed in range(20):
        run = kind(random.Random(seed))
        assert not find_anomalies(run), (kind.__name__, seed)
        resumed = random.Random(seed).randrange(20, len(run) - 20)
        first: dict[str, Any] = {}
        for step, value in enumerate(run[:resumed], 1):
            assert not list(loss_anomalies.check_point(first, step, {"loss": value}))
        again = [value * 1.3 for value in run[resumed - 20 : resumed]] + run[
            resumed:
        ]  # moments are lost, and found again
        assert not find_anomalies(again, state=loss_anomalies.extract_starts(first)), (kind.__name__, seed, resumed)


def runs(seeds: int = 20) -> Iterator[list[float]]:
    for seed in range(seeds):
        chance = random.Random(seed)
        yield falling(chance, 120, chance.uniform(6, 11), chance.uniform(0.5, 1.5), chance.uniform(0.01, 0.1))


def test_a_nan_loss_is_suspected_at_once_and_soon_certain() -> None:
    for run in runs():
        first, second = find_anomalies([*run, None, None, None, None])
        assert codes([first, second]) == [(NOT_FINITE, Level.WARN), (NOT_FINITE, Level.FAIL)]
        assert isinstance(second, Finding)
        assert second.params == {"metric": "loss", "step": 121, "good": 120, "count": CERTAIN_POINTS}
        assert second.evidence[0].lines[-1] == "step 123: loss is not finite"
        assert second.evidence[0].lines[-2] == f"step 120: loss {run[-1]:.4g}"


def test_a_step_skipped_by_the_scaler_is_suspected_once_and_withdrawn() -> None:
    run: list[float | None] = list(next(runs()))
    run[20:20] = [None]
    run[60:60] = [None, None]
    assert codes(find_anomalies(run)) == [(NOT_FINITE, Level.WARN), (NOT_FINITE, "over"), (NOT_FINITE, "over")]


def test_a_run_that_starts_with_nan_has_no_good_step() -> None:
    certain = find_anomalies([None, None, None])[-1]
    assert isinstance(certain, Finding)
    assert (certain.params["step"], certain.params["good"]) == (1, None)


def test_returning_finite_losses_resolve_it() -> None:
    assert codes(find_anomalies([1.0, None, None, None, 1.0, 1.0]))[-1] == (NOT_FINITE, Level.FAIL)
    assert codes(find_anomalies([1.0, None, None, None, 1.0, 1.0, 1.0]))[-1] == (NOT_FINITE, "over")


@pytest.mark.parametrize("to", [0.7, 1.0, 30.0], ids=["most of it lost", "as at the start", "exploded"])
def test_a_lasting_jump_of_the_loss_is_reported_with_its_step(to: float) -> None:
    for run in runs():
        bad = [run[0] * to * (1 + 0.05 * (i % 3)) for i in range(SUSTAINED_POINTS + 5)]
        (found,) = find_anomalies(run + bad)
        assert isinstance(found, Finding)
        assert (found.code, found.level) == (JUMPED, Level.FAIL)
        assert (found.params["step"], found.params["good"]) == (121, 120)
        assert f"step 121: loss {float(f'{bad[0]:.6g}'):.4g}" in found.evidence[0].lines


def test_a_jump_to_a_multiple_is_reported_early() -> None:
    chance = random.Random(3)
    level = [2.0 + chance.random() / 20 for _ in range(60)]
    assert [one.code for one in find_anomalies(level + [25.0] * SUSTAINED_POINTS)] == [JUMPED]
    assert find_anomalies(level + [3.0] * SUSTAINED_POINTS) == []


def test_a_jump_is_resolved_once_the_loss_is_back() -> None:
    run = next(runs())
    bad = [run[0]] * (SUSTAINED_POINTS + 30)
    assert codes(find_anomalies(run + bad + run[-30:])) == [(JUMPED, Level.FAIL), (JUMPED, "over")]


def test_a_resumed_run_is_compared_with_the_first_losses() -> None:
    (run,) = runs(1)
    state: dict[str, Any] = {}
    for step, value in enumerate(run, 1):
        list(loss_anomalies.check_point(state, step, {"loss": value}))
    tail = run[-45:]
    worse = [min(run[0], 4 * tail[0])] * 15  # no multiple that would be told of without it
    assert not find_anomalies([*tail, *worse])
    assert codes(find_anomalies([*tail, *worse], state=loss_anomalies.extract_starts(state))) == [(JUMPED, Level.FAIL)]


def even(points: int, level: float, noise: float, seed: int = 0) -> list[float]:
    chance = random.Random(seed)
    return [level + chance.gauss(0, noise) for _ in range(points)]


@pytest.mark.parametrize(
    ("points", "at", "exact"),
    [
        ([2.30259] * 120, 100, True),
        ([0.69] * 320, 300, True),  # two digits may hide what moves
        ([0.0] * 320, 300, True),
        (falling(random.Random(1), 150) + [2.41379] * 220, 350, True),
        (even(700, 10.82, 0.02), 600, False),
    ],
    ids=["log 10", "log 2 in two digits", "zero", "dead from a step on", "noise around log 50,000"],
)
def test_a_constant_loss_is_a_warning_with_its_numbers(points: list[float], at: int, exact: bool) -> None:
    found = find_anomalies(points)
    assert codes(found) == [(STUCK, Level.WARN)]
    (finding,) = [one for one in found if isinstance(one, Finding)]
    assert (finding.params["step"], finding.params.get("exact", False)) == (at, exact)
    for lang in messages.LANGUAGES:
        message, hint = messages.render_text(finding.code, lang, **finding.params)
        assert f"{finding.params['level']}" in message
        assert hint


def test_a_loss_that_moves_resolves_the_warning() -> None:
    assert codes(find_anomalies([2.30259] * 120 + falling(random.Random(2), 60, 2.3, 1.0))) == [
        (STUCK, "warn"),
        (STUCK, "over"),
    ]
    slow = [value - 0.001 * number for number, value in enumerate(even(900, 10.82, 0.02))]
    assert codes(find_anomalies(even(640, 10.82, 0.02) + slow)) == [(STUCK, "warn"), (STUCK, "over")]


@pytest.mark.parametrize(
    "points",
    [
        [value - 0.0001 * number for number, value in enumerate(even(900, 10.82, 0.02))],  # slowly, but it learns
        falling(random.Random(3), 150, 10.8, 2.5) + even(900, 2.5, 0.02),  # level at its end
        even(900, 1.2, 0.3),  # too uneven to tell
        even(900, 0.0, 0.1),
        [0.69] * 280 + even(50, 0.6, 0.01),
        falling(random.Random(4), 150) + [0.0003] * 400,  # four decimals are printed, and it has converged
    ],
    ids=["slow", "at its end", "uneven", "around zero", "two digits", "converged"],
)
def test_a_moving_or_legitimately_constant_loss_is_not_reported(points: list[float]) -> None:
    assert not find_anomalies(points)


def test_a_resumed_run_may_have_a_level_loss() -> None:
    first: dict[str, Any] = {}
    for step, value in enumerate(falling(random.Random(5), 200, 10.8, 2.5), 1):
        list(loss_anomalies.check_point(first, step, {"loss": value}))
    assert not find_anomalies(even(900, 2.5, 0.02), state=loss_anomalies.extract_starts(first))


@pytest.mark.parametrize("name", ["loss", "train_loss", "train/loss", "Training Loss", "lm loss", "total-loss"])
def test_loss_names_of_trainers_are_recognized(name: str) -> None:
    assert codes(find_anomalies([None] * 3, name))[-1] == (NOT_FINITE, Level.FAIL)


@pytest.mark.parametrize("name", ["val_loss", "eval_loss", "valid/loss", "loss_scale", "grad_norm", "accuracy", "lr"])
def test_other_metrics_are_not_taken_for_a_loss(name: str) -> None:
    assert not find_anomalies([None] * 10, name)


def test_memory_and_reports_are_bounded() -> None:
    state: dict[str, Any] = {}
    told = []
    for step in range(3000):
        values = dict.fromkeys(loss_anomalies.LOSS_NAMES, None if step // 10 % 2 else 1.0 + step % 7)
        told += list(loss_anomalies.check_point(state, step, values))
    assert len(json.dumps(state)) < 4000
    assert len([one for one in told if isinstance(one, Finding)]) < 25
