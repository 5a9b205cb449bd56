"""What the time went into that a task held its environments for."""

import random
from itertools import pairwise

import pytest

from fermi.scheduler.ledger import (
    PART_NAMES,
    AttemptTimes,
    build_spans,
    compute_breakdown,
    compute_ettr,
    compute_goodput,
    parts_to_dict,
)


def found(since: float, until: float, *runs: AttemptTimes) -> dict[str, float]:
    return {name: value for name, value in parts_to_dict(compute_breakdown(since, until, runs)).items() if value}


def test_a_completed_attempt_has_start_up_and_training():
    run = AttemptTimes(began=10, running=12, stepped=15, passed=15, steps_known=True, ending=100, ended=101)
    assert found(10, 101, run) == {"starting": 5, "training": 85, "saving": 1}


def test_training_is_redone_until_the_highest_step_is_passed():
    first = AttemptTimes(
        began=0, running=1, stepped=5, passed=5, steps_known=True, signed=50, ending=53, ended=55, failed=True
    )
    second = AttemptTimes(began=60, running=61, stepped=65, passed=80, steps_known=True, ending=100, ended=100)
    assert found(0, 100, first, second) == {
        "starting": 5 + 5, "training": 45 + 20, "lost": 5 + 5, "redone": 15,
    }  # fmt: skip


def test_an_attempt_below_the_highest_step_is_only_redone():
    run = AttemptTimes(began=0, stepped=1, passed=None, steps_known=True, signed=9, ending=9, ended=10, failed=True)
    assert found(0, 10, run) == {"starting": 1, "redone": 8, "lost": 1}


def test_without_steps_the_newest_checkpoint_shows_what_is_redone():
    first = AttemptTimes(began=0, running=2, ending=20, ended=20, failed=True, saved=14)
    second = AttemptTimes(began=20, running=22, ending=50, ended=50)
    assert found(0, 50, first, second) == {"starting": 2 + 2, "training": 18 + 22, "redone": 6}


def test_a_stopped_attempt_has_saving_time_and_leases_without_attempt_are_idle():
    run = AttemptTimes(began=3, running=4, stepped=5, passed=5, steps_known=True, ending=20, ended=24)
    assert found(0, 30, run) == {"idle": 3 + 6, "starting": 2, "training": 15, "saving": 4}


def test_a_hung_gang_has_hanging_and_lost_time():
    run = AttemptTimes(began=0, stepped=2, passed=2, steps_known=True, signed=10, ending=40, ended=44, failed=True,
              hangs=[(12, None)])  # fmt: skip
    assert found(0, 50, run) == {"starting": 2, "training": 8, "lost": 2 + 4 + 6, "hung": 28}


def test_a_resolved_hang_is_subtracted_from_training():
    run = AttemptTimes(began=0, stepped=2, passed=2, steps_known=True, ending=50, ended=50, hangs=[(10, 20), (15, 25)])
    assert found(0, 50, run) == {"starting": 2, "training": 8 + 25, "hung": 15}


def test_waiting_counts_for_ettr_and_not_for_goodput():
    parts = compute_breakdown(0, 10, [AttemptTimes(began=0, running=2)])
    assert (compute_goodput(parts), compute_ettr(parts, 6)) == (0.8, 0.5)
    assert compute_ettr(compute_breakdown(5, 5, []), 0) is None


def test_without_leases_there_is_no_goodput():
    assert compute_goodput(compute_breakdown(5, 5, [])) is None
    assert compute_goodput(compute_breakdown(0, 10, [AttemptTimes(began=0, running=5)])) == 0.5


@pytest.mark.parametrize("seed", range(200))
def test_the_parts_sum_to_the_held_time(seed: int):
    """And each stretch begins where the one before it ended."""
    dice = random.Random(seed)
    at, runs = dice.uniform(0, 20), []
    for _ in range(dice.randrange(5)):
        moments = sorted(at + dice.uniform(0, 30) for _ in range(6))
        _, running, stepped, passed, ending, ended = (
            moment if dice.random() < 0.8 else None for moment in moments
        )  # fmt: skip
        runs.append(AttemptTimes(
            began=moments[0], running=running, stepped=stepped, passed=passed, steps_known=stepped is not None,
            signed=dice.choice([None, *moments]), ending=ending, ended=ended, failed=dice.random() < 0.5,
            saved=dice.choice([None, *moments]),
            hangs=[(dice.choice(moments), dice.choice([None, *moments])) for _ in range(dice.randrange(3))],
        ))  # fmt: skip
        at = moments[-1] + dice.uniform(-5, 10)
    dice.shuffle(runs)
    since = dice.uniform(0, 50)
    until = since + dice.uniform(0, 100)
    parts = compute_breakdown(since, until, runs)
    assert parts.total == pytest.approx(until - since)
    assert min(parts_to_dict(parts).values()) >= 0
    stretches = build_spans(since, until, runs)
    assert all(one[2] == other[1] for one, other in pairwise(stretches))
    assert {name for name, _, _ in stretches} <= set(PART_NAMES)
