"""A model that is compiled again and again, look after look."""

from typing import Any

import pytest

from fermi import messages
from fermi.diagnosis import Level, recompiles
from fermi.diagnosis.stragglers import RankLocation
from fermi.jobs.spec import RankProgress

BEGAN = 1_700_000_000.0
PLACES = {rank: RankLocation(rank, f"env-{rank}") for rank in range(2)}


def play(looks: list[dict[str, Any]]) -> list[tuple[int, str, Any]]:
    """Of rank 1, four seconds apart; rank 0 compiles nothing."""
    history, told = recompiles.RecompileHistory(), []
    for number, about in enumerate(looks):
        moment = BEGAN + 4 * number
        pulses = {0: RankProgress(0, moment, "running", 100), 1: RankProgress(1, moment, "running", **about)}
        news = recompiles.detect_recompiles(history, pulses, PLACES, moment)
        told += [(number, str(one.level), one) for one in news.findings] + [
            (number, "over", one) for one in news.resolved
        ]
    return told


def stepping(step: int, recompiled: int, last: int, gave_up: str = "") -> dict[str, Any]:
    said = {"gave_up": gave_up} if gave_up else None
    return {"step": step, "compiles": recompiled + 2, "recompiled": recompiled, "recompiled_at": last,
            "compiling": 3.0, "compiler": said}  # fmt: skip


def printing(number: int, compiles: int) -> dict[str, Any]:
    return {"compiles": compiles, "printed_at": BEGAN + number, "compiling": 2.0}


def test_compiling_in_every_step_is_reported_and_soon_a_warning() -> None:
    told = play([stepping(step, step - 2, step) for step in range(3, 60, 3)])
    assert [(level) for _, level, _ in told] == [Level.INFO, Level.WARN]
    finding = told[0][2]
    assert (finding.where[0].rank, finding.where[0].node) == (1, "env-1")
    for lang in messages.LANGUAGES:
        assert "1" in messages.render_text(finding.code, lang, **finding.params)[0]
        assert [messages.render_text(one.code, lang, **one.params) for one in finding.evidence]


def test_compiling_that_starts_after_a_thousand_steps_is_reported() -> None:
    told = play(
        [stepping(1000 + step, 0, 0) for step in range(9)] + [stepping(1009 + n, n, 1009 + n) for n in range(9)]
    )
    assert [(number, level) for number, level, _ in told] == [(14, Level.INFO)]


def test_a_compiler_that_gave_up_is_a_lasting_warning_with_the_function() -> None:
    told = play([stepping(10 + 500 * number, 6, 8, "train.py:9 in forward") for number in range(9)])
    assert [level for _, level, _ in told] == [Level.WARN]
    assert "gave up on train.py:9 in forward" in messages.render_text("RECOMPILES", "en", **told[0][2].params)[0]
    assert "train.py:9 in forward" in messages.render_text("RECOMPILES", "zh", **told[0][2].params)[0]


def test_many_steps_without_compiling_resolve_it() -> None:
    told = play([stepping(step, step - 2, step) for step in (4, 8, 9)] + [stepping(200, 7, 9), stepping(300, 7, 9)])
    assert [level for _, level, _ in told] == [Level.INFO, "over"]


@pytest.mark.parametrize(
    "looks",
    [
        [stepping(step, min(step, 4), min(step, 5)) for step in range(3, 100)],  # some shapes at its beginning
        [stepping(step, step // 50, step // 50 * 50) for step in range(50, 3000, 50)],  # one in each evaluation
        [printing(number, 40) for number in range(60)],
        [printing(number, 40 + number // 2) for number in range(60)],
        [printing(0, number) for number in range(60)],  # it compiles for long before it says anything
        [{"compiles": None}] * 60,
    ],
)
def test_normal_compilation_is_not_reported(looks: list[dict[str, Any]]) -> None:
    assert play(looks) == []


def test_without_visible_steps_each_observation_must_find_compilations() -> None:
    told = play([printing(number, 5 * number) for number in range(40)] + [printing(40 + n, 200) for n in range(20)])
    assert [level for _, level, _ in told] == [Level.INFO, Level.WARN, "over"]
    assert told[0][0] == 1 + recompiles.MIN_LOOKS, "the first look found none yet"
    assert (
        "keeps compiling during training: 60 times" in messages.render_text("RECOMPILES", "en", **told[0][2].params)[0]
    )
    assert "60 次" in messages.render_text("RECOMPILES", "zh", **told[0][2].params)[0]
