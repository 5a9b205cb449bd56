"""How long a rank may be silent: lives of ranks, second by second, without a clock."""

import random
from collections.abc import Iterable
from itertools import chain, repeat

import pytest

from fermi.runner.stall_threshold import MAX_SECONDS, StallThreshold

Second = tuple[str, bool, bool]
"""Phase, whether it advanced, whether it did anything."""
STEP: Second = ("running", True, True)
HANGS: Second = ("running", False, False)


def computing(seconds: int, phase: str = "running") -> list[Second]:
    """Without a sign, and then one."""
    return [(phase, False, True)] * seconds + [(phase, True, True)]


def waiting(seconds: int, phase: str = "running") -> list[Second]:
    return [(phase, False, False)] * seconds + [(phase, True, True)]


def alarms(life: Iterable[Second], fixed: float | None = None) -> list[int]:
    """The seconds at which it has rested, or been silent, for too long."""
    patience, found, steps = StallThreshold(0.0, fixed), [], 0
    for second, (phase, advanced, active) in enumerate(life, 1):
        steps += advanced and phase == "running"
        patience.record_sample(float(second), phase, steps, advanced=advanced, active=active)
        if patience.is_silent_too_long(second) or patience.is_idle_too_long(second):
            found.append(second)
    return found


def uneven() -> list[Second]:
    rng = random.Random(7)
    return list(chain(*(computing(rng.randrange(8)) for _ in range(500))))


HEALTHY = {
    "a slow start": [("starting", False, True)] * 40 + [STEP] * 60,
    "a start that waits for a mount": [("starting", False, False)] * 40 + [STEP] * 60,
    "a first step that compiles for long": [*computing(40, "starting"), *computing(40, "compiling"), *[STEP] * 60],
    "steps of 40 seconds": list(chain(*(computing(40) for _ in range(20)))),
    "an evaluation every fifty steps": list(chain(*([*[STEP] * 50, *computing(40, "evaluating")] for _ in range(8)))),
    "a checkpoint, with a slow disk": list(chain(*([*[STEP] * 50, *waiting(40, "saving")] for _ in range(8)))),
    "steps of 0 to 8 seconds": uneven(),
    "an evaluation no hook sees, ever longer": [*[STEP] * 20, *computing(7), *computing(20), *computing(40)],
    "rank 0 saves, and this one waits": list(chain(*([*[STEP] * 20, *waiting(w)] for w in (5, 7, 14, 20, 40)))),
}


@pytest.mark.parametrize("life", HEALTHY.values(), ids=HEALTHY)
def test_a_progressing_rank_is_never_inspected(life: list[Second]) -> None:
    assert alarms(life) == []


@pytest.mark.parametrize("past", [1, 10, 1000])
def test_a_hang_between_steps_is_detected_after_eight_seconds(past: int) -> None:
    life = [*[("starting", False, True)] * 30, *[STEP] * (3 + past)]
    assert alarms([*life, *repeat(HANGS, 20)])[0] == len(life) + 8


def test_long_evaluations_do_not_delay_the_detection_of_idle_ranks() -> None:
    life = [*[STEP] * 50, *computing(7), *computing(20), *computing(40), *[STEP] * 50]
    assert alarms([*life, *repeat(HANGS, 20)])[0] == len(life) + 8
    assert alarms([*life, *repeat(("running", False, True), 170)])[0] == len(life) + 123


def test_before_the_third_step_and_in_other_phases_detection_takes_45_seconds() -> None:
    assert alarms([STEP, STEP, *repeat(HANGS, 70)])[0] == 47
    assert alarms(repeat(("starting", False, False), 70))[0] == 45
    for phase in ("compiling", "evaluating", "saving"):
        assert alarms([*[STEP] * 9, (phase, True, True), *repeat((phase, False, False), 70)])[0] == 55


def test_a_hanging_teardown_is_detected_after_eight_seconds() -> None:
    assert alarms([STEP, ("ending", True, True), *repeat(("ending", False, False), 9)])[0] == 10


def test_learnt_thresholds_are_bounded_and_overridden_by_the_task() -> None:
    life = computing(2000)
    assert alarms([*[STEP] * 3, *life, *repeat(("running", False, True), 1900)])[-1] == 3 + len(life) + 1900
    assert StallThreshold(0.0).get_threshold("silence") < MAX_SECONDS
    assert alarms([*[STEP] * 50, *computing(20), *repeat(HANGS, 40)], fixed=30.0)[0] == 71 + 30
