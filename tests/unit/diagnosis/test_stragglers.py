"""Who holds a gang up, and whether it has become slower, look after look."""

from dataclasses import replace

import pytest

from fermi import messages
from fermi.diagnosis import Level, stragglers
from fermi.jobs.spec import RankProgress

PLACES = {rank: stragglers.RankLocation(rank // 2, f"env-{rank // 2}") for rank in range(4)}
BEGAN = 1_700_000_000.0


def play(looks, history=None, began=BEGAN, step=100.0):
    """Looks at pulses, four seconds apart: each is the ranks' waiting shares, seconds per step, and their phase."""
    history, told = history or stragglers.StepHistory(), []
    for number, (waits, pace, phase) in enumerate(looks):
        moment = began + 4 * number
        step += 4 / pace
        pulses = {
            rank: RankProgress(rank, moment, phase, int(step), moment, pace, waiting=wait, cpu=1.0 - 0.9 * (rank == 3),
                            rss_bytes=1 << 30)
            for rank, wait in enumerate(waits)
        }  # fmt: skip
        news = stragglers.detect_stragglers(history, pulses, PLACES, moment)
        told += [(number, one.code, one.level, one) for one in news.findings] + [
            (number, one, None, None) for one in news.resolved
        ]
    return told


EVEN = ([0.1, 0.12, 0.09, 0.11], 0.1, "running")
HELD_UP = ([0.8, 0.79, 0.81, 0.02], 0.5, "running")


def test_a_straggler_is_named_and_becomes_a_warning_when_it_lasts():
    told = play([EVEN] * 6 + [([0.8, 0.79, 0.81, 0.02], 0.1, "running")] * 30 + [EVEN] * 3)
    assert [(code, level) for _, code, level, _ in told] == [
        (stragglers.STRAGGLER, Level.INFO), (stragglers.STRAGGLER, Level.WARN), (stragglers.STRAGGLER, None),
    ]  # fmt: skip
    number, _, _, finding = told[0]
    assert number <= 6 + 3
    assert (finding.where[0].rank, finding.where[0].node) == (3, "env-1")
    for lang in messages.LANGUAGES:
        messages.render_text(finding.code, lang, **finding.params)
        assert [messages.render_text(one.code, lang, **one.params) for one in finding.evidence]


@pytest.mark.parametrize(
    "looks",
    [
        [EVEN] * 100,
        [([0.5, 0.3, 0.4, 0.2], 0.1, "running")] * 100,  # uneven, but nobody is waited for alone
        [([0.8, 0.8, 0.8, 0.05], 0.1, "running"), ([0.05, 0.8, 0.8, 0.8], 0.1, "running")] * 50,  # by turns
        [([0.9, 0.9, 0.9, 0.0], 4.0, "evaluating")] * 100,
        [([0.9, 0.9, 0.9, 0.0], 4.0, "saving")] * 100,
        [([None, None, None, None], 0.1, "running")] * 100,
        # One wait of 72 s, of which the shares of time tell for two more looks.
        [EVEN] * 10
        + [([1.0, 1.0, 1.0, 0.0], 1e9, "running")] * 18
        + [([0.9, 0.9, 0.9, 0.0], 0.1, "running")] * 2
        + [EVEN] * 9,
        ([EVEN] * 10 + [([0.1] * 4, 3.0, "evaluating")] * 5) * 5,
        ([EVEN] * 10 + [([0.1] * 4, 0.14, "running")] * 10) * 3,
    ],
)
def test_normal_progress_is_not_reported(looks):
    assert play(looks) == []


def test_a_run_slower_than_its_past_is_reported_until_it_recovers():
    told = play([EVEN] * 10 + [([0.1] * 4, 0.3, "running")] * 30 + [EVEN] * 4)
    assert [(code, level) for _, code, level, _ in told] == [
        (stragglers.SLOWER, Level.INFO), (stragglers.SLOWER, Level.WARN), (stragglers.SLOWER, None),
    ]  # fmt: skip
    assert told[0][3].params["times"] == "3.0"
    assert told[0][0] <= 13


def test_a_slow_start_is_no_baseline():
    assert play([([0.1] * 4, 5.0, "compiling")] * 5 + [EVEN] * 20) == []


def peers(**changes):
    """Three ranks of which rank 3 is the slow one, with such changes."""
    alive = [
        RankProgress(rank, BEGAN, "running", 100, waiting=0.8, cpu=0.3, place={"at": "train.py:9 in step", "inside": "",
                                                                            "share": 0.2})
        for rank in range(3)
    ]  # fmt: skip
    slowest = RankProgress(3, BEGAN, "running", 100, waiting=0.0, **{"cpu": 0.0, **changes})
    return [*alive, slowest], slowest


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"starved": 0.7, "cpu": 0.2}, "starved"),
        ({"throttled": 0.5}, "starved"),
        ({"stolen": 0.3}, "starved"),
        ({"squeezed": 0.4}, "memory"),
        ({"place": {"at": "train.py:8 in load_batch", "inside": "", "share": 0.9}}, "loading"),
        ({"place": {"at": "train.py:8", "inside": "_try_get_data (torch/utils/data/dataloader.py:1131)"}}, "loading"),
        ({"read": 200 << 20}, "loading"),
        ({"place": {"at": "train.py:8", "inside": "save (torch/serialization.py:9)"}, "cpu": 1.0}, "writing"),
        ({"written": 200 << 20, "cpu": 0.9}, "writing"),
        ({"place": {"at": "model.py:8 in forward", "inside": "", "share": 0.9}, "cpu": 1.0}, "computing"),
        ({"place": {"at": "train.py:8 in retry", "inside": "", "share": 0.9}}, "waiting"),
        ({"cpu": None}, ""),
    ],
)
def test_the_reason_of_a_straggler_follows_from_its_line_and_usage(changes, why):
    alive, slowest = peers(**changes)
    assert stragglers.explain_slowness(alive, slowest) == why


def test_a_property_shared_by_all_ranks_explains_no_straggler():
    alive, _ = peers()
    others = [replace(one, starved=0.5, written=300 << 20) for one in alive[:3]]
    slowest = replace(alive[3], starved=0.55, written=300 << 20, cpu=1.0)
    assert stragglers.explain_slowness([*others, slowest], slowest) == "computing"


def test_a_straggler_is_named_with_its_line_and_compared_with_the_others():
    place = {"at": "train.py:8 in load_batch", "inside": "get (queue.py:171)", "share": 0.9}
    alive, slowest = peers(place=place)
    finding = stragglers._build_straggler_finding(alive, slowest, PLACES, Level.WARN, BEGAN)
    message, hint = messages.render_text(finding.code, "en", **finding.params)
    assert "rank 3 on env-1, which spends 90 % of its time in train.py:8 in load_batch" in message
    assert hint.startswith("It loads data")
    assert "load_batch" in messages.render_text(finding.code, "zh", **finding.params)[0]
    assert finding.actions[0].params == {"at": "train.py:8 in load_batch"}
    shown = messages.render_text(finding.evidence[0].code, "en", **finding.evidence[0].params)[0]
    assert shown == (
        "It spends 90 % of its time in train.py:8 in load_batch, inside get (queue.py:171); outside collectives, the "
        "others are mostly in train.py:9 in step."
    )


@pytest.mark.parametrize("pace", [0.1, 1.0, 4.0, 10.0])
def test_a_straggler_from_the_first_step_is_named_within_a_minute(pace):
    told = play([([0.9, 0.88, 0.91, 0.0], pace, "running")] * 20, step=2.0)
    number, code, _, _ = told[0]
    assert code == stragglers.STRAGGLER
    assert 4 * number <= 60 - 2 * pace, "after its first two steps"


def test_a_straggler_is_a_warning_within_half_a_minute():
    [_, (number, code, level, _)] = play([EVEN] * 6 + [([0.8, 0.79, 0.81, 0.02], 0.1, "running")] * 12)
    assert (code, level) == (stragglers.STRAGGLER, Level.WARN)
    assert 4 * (number - 6) <= 30 - 10, "after the window of ten seconds is full of it"


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"starved": 0.6}, "STRAGGLER_IS_STARVED"),
        ({"read": 64 << 20}, "STRAGGLER_READS"),
        ({"written": 64 << 20}, "STRAGGLER_WRITES"),
        ({"throttled": 0.6}, "STRAGGLER_IS_THROTTLED"),
        ({"stolen": 0.2}, "STRAGGLER_IS_STOLEN"),
        ({"squeezed": 0.3}, "STRAGGLER_IS_SQUEEZED"),
        ({"gpu": {"clock": 1185, "temperature": 87, "slowed": "heat"}}, "STRAGGLER_GPU_IS_SLOW"),
        ({"gpu": {"clock": 1400}}, "STRAGGLER_GPU_IS_SLOW"),
    ],
)
def test_unusual_values_of_a_straggler_are_its_evidence(changes, code):
    gpu = {"clock": 1980, "temperature": 60}
    alive = [RankProgress(rank, BEGAN, "running", 100, waiting=0.8, cpu=1.0, gpu=gpu) for rank in range(3)]
    slowest = RankProgress(3, BEGAN, "running", 100, waiting=0.0, cpu=1.0, **{"gpu": gpu, **changes})
    found = {
        one.code: one for one in stragglers._list_evidence([*alive, slowest], slowest, stragglers.Where(3, 1, "env-1"))
    }
    assert found.keys() == {"STRAGGLER_COMPUTES", code}
    for lang in messages.LANGUAGES:
        messages.render_text(code, lang, **found[code].params)
