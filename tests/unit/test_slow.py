"""Who holds a gang up, and whether it has become slower, look after look."""

import pytest

from fermi import messages
from fermi.launch.diagnosis import Level, slow
from fermi.launch.spec import PulseSeen

PLACES = {rank: slow.Place(rank // 2, f"env-{rank // 2}") for rank in range(4)}
BEGAN = 1_700_000_000.0


def play(looks, history=None, began=BEGAN):
    """Looks at pulses, four seconds apart: each is the ranks' waiting shares, seconds per step, and their phase."""
    history, told, step = history or slow.History(), [], 100.0
    for number, (waits, pace, phase) in enumerate(looks):
        moment = began + 4 * number
        step += 4 / pace
        pulses = {
            rank: PulseSeen(rank, moment, phase, int(step), moment, pace, waiting=wait, cpu=1.0 - 0.9 * (rank == 3),
                            rss_bytes=1 << 30)
            for rank, wait in enumerate(waits)
        }  # fmt: skip
        news = slow.judge(history, pulses, PLACES, moment)
        told += [(number, one.code, one.level, one) for one in news.found] + [
            (number, one, None, None) for one in news.over
        ]
    return told


EVEN = ([0.1, 0.12, 0.09, 0.11], 0.1, "running")
HELD_UP = ([0.8, 0.79, 0.81, 0.02], 0.5, "running")


def test_the_one_that_all_wait_for_is_named_and_becomes_a_warning_when_it_lasts():
    told = play([EVEN] * 6 + [([0.8, 0.79, 0.81, 0.02], 0.1, "running")] * 30 + [EVEN] * 3)
    assert [(code, level) for _, code, level, _ in told] == [
        (slow.STRAGGLER, Level.INFO), (slow.STRAGGLER, Level.WARN), (slow.STRAGGLER, None),
    ]  # fmt: skip
    number, _, _, finding = told[0]
    assert number <= 6 + 3
    assert (finding.where[0].rank, finding.where[0].node) == (3, "env-1")
    for lang in messages.LANGUAGES:
        messages.text(finding.code, lang, **finding.params)
        assert [messages.text(one.code, lang, **one.params) for one in finding.evidence]


@pytest.mark.parametrize(
    "looks",
    [
        [EVEN] * 100,
        [([0.5, 0.3, 0.4, 0.2], 0.1, "running")] * 100,  # uneven, but nobody is waited for alone
        [([0.8, 0.8, 0.8, 0.05], 0.1, "running"), ([0.05, 0.8, 0.8, 0.8], 0.1, "running")] * 50,  # by turns
        [([0.9, 0.9, 0.9, 0.0], 4.0, "evaluating")] * 100,
        [([0.9, 0.9, 0.9, 0.0], 4.0, "saving")] * 100,
        [([None, None, None, None], 0.1, "running")] * 100,
        ([EVEN] * 10 + [([0.1] * 4, 3.0, "evaluating")] * 5) * 5,
        ([EVEN] * 10 + [([0.1] * 4, 0.14, "running")] * 10) * 3,
    ],
)
def test_what_is_as_it_should_be_is_no_news(looks):
    assert play(looks) == []


def test_a_run_that_falls_behind_its_own_past_is_told_of_and_over_when_it_is_back():
    told = play([EVEN] * 10 + [([0.1] * 4, 0.3, "running")] * 30 + [EVEN] * 4)
    assert [(code, level) for _, code, level, _ in told] == [
        (slow.SLOWER, Level.INFO), (slow.SLOWER, Level.WARN), (slow.SLOWER, None),
    ]  # fmt: skip
    assert told[0][3].params["times"] == "3.0"
    assert told[0][0] <= 13


def test_a_slow_start_is_no_past_to_fall_behind():
    assert play([([0.1] * 4, 5.0, "compiling")] * 5 + [EVEN] * 20) == []


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"throttled": 0.6}, "STRAGGLER_IS_THROTTLED"),
        ({"stolen": 0.2}, "STRAGGLER_IS_STOLEN"),
        ({"squeezed": 0.3}, "STRAGGLER_IS_SQUEEZED"),
        ({"gpu": {"clock": 1185, "temperature": 87, "slowed": "heat"}}, "STRAGGLER_GPU_IS_SLOW"),
        ({"gpu": {"clock": 1400}}, "STRAGGLER_GPU_IS_SLOW"),
    ],
)
def test_what_is_odd_about_a_straggler_is_its_evidence(changes, code):
    gpu = {"clock": 1980, "temperature": 60}
    alive = [PulseSeen(rank, BEGAN, "running", 100, waiting=0.8, cpu=1.0, gpu=gpu) for rank in range(3)]
    slowest = PulseSeen(3, BEGAN, "running", 100, waiting=0.0, cpu=1.0, **{"gpu": gpu, **changes})
    found = {one.code: one for one in slow._odd([*alive, slowest], slowest, slow.Where(3, 1, "env-1"))}
    assert found.keys() == {"STRAGGLER_COMPUTES", code}
    for lang in messages.LANGUAGES:
        messages.text(code, lang, **found[code].params)
