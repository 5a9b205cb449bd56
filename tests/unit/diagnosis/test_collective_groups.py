"""Collectives of groups of some of the ranks: which of which group, and who is missing."""

from typing import Any

from fermi import messages
from fermi.diagnosis import collective_groups, hangs
from fermi.jobs.spec import RankStatus
from tests.unit.diagnosis.test_hangs import NOW, SITE, rank, stalled

ALL = [0, 1, 2, 3]


def waits(number: int, op: str, seq: int, ranks: list[int], **more: Any) -> RankStatus:
    return rank(number, stalled(op, op={"seq": seq, "group": "1", "sizes": [[7]], "ranks": ranks, **more}))


def judge(ranks: list[RankStatus]) -> tuple[hangs.HangVerdict, str, list[str]]:
    verdict = hangs.detect_hang(ranks, SITE, NOW)
    assert verdict is not None
    finding = verdict.finding
    for lang in messages.LANGUAGES:
        assert [messages.render_text(one.code, lang, **one.params) for one in finding.evidence]
    lacks = [
        messages.render_text(one.code, "en", **one.params)[0]
        for one in finding.evidence
        if one.code == "COLLECTIVE_LACKS"
    ]
    return verdict, messages.render_text(finding.code, "en", **finding.params)[0], lacks


def test_the_group_its_ranks_and_missing_ranks_are_named() -> None:
    ranks = [
        waits(0, "all_reduce", 5, [0, 1], name="tp"),
        rank(1, stalled()),
        *(waits(n, "barrier", 2, ALL) for n in (2, 3)),
    ]
    verdict, _, lacks = judge(ranks)
    assert (verdict.finding.code, verdict.ranks) == (hangs.HANG, (1,))
    assert lacks == ["all_reduce, number 5 of group tp of ranks 0, 1: rank 0 is waiting, rank 1 is missing."]


def test_a_deadlock_between_two_groups_is_detected() -> None:
    ranks = [waits(0, "all_reduce", 5, [0, 1]), *(waits(n, "barrier", 2, ALL) for n in (1, 2, 3))]
    verdict, message, _ = judge(ranks)
    assert (verdict.finding.code, verdict.certain, verdict.ranks) == (hangs.MISMATCH, True, (1,))
    assert message == (
        "1 rank waits in all_reduce, number 5 of the group of ranks 0, 1 (train.py:120 in main); rank 1 on head-env "
        "waits in barrier, number 2 of the group of ranks 0, 1, 2, 3 (train.py:120 in main): these calls never match."
    )


def test_different_collective_numbers_of_one_group_are_detected() -> None:
    ranks = [waits(0, "all_reduce", 5, [0, 1]), waits(1, "all_gather", 6, [0, 1]), waits(2, "all_reduce", 5, [2, 3]),
             rank(3, stalled())]  # fmt: skip
    verdict, _, lacks = judge(ranks)
    assert (verdict.finding.code, verdict.ranks) == (hangs.MISMATCH, (1,))
    assert len(lacks) == 3


def test_a_rank_with_several_open_collectives_may_be_in_the_other_one() -> None:
    flight = {"groups": {"0": {"enqueued": 2, "completed": 1}, "1": {"enqueued": 5, "completed": 4}}, "last": []}
    other = stalled("barrier", op={"seq": 2, "group": "0", "sizes": [], "ranks": ALL}, flight=flight)
    verdict, _, lacks = judge(
        [waits(0, "all_reduce", 5, [0, 1]), rank(1, other), *(waits(n, "barrier", 2, ALL) for n in (2, 3))]
    )
    assert verdict.finding.code == hangs.HANG
    assert lacks == []


def test_broadcasts_with_different_roots_are_named() -> None:
    verdict, message, _ = judge([waits(n, "broadcast", 9, ALL, root=1 if n == 3 else 0) for n in ALL])
    assert (verdict.finding.code, verdict.ranks) == (hangs.MISMATCH, (3,))
    assert message.startswith("3 ranks wait in broadcast with root 0 (train.py:120 in main); rank 3 on other-env waits")
    assert "in broadcast with root 1" in message


def test_groups_waiting_for_a_busy_group_are_no_deadlock() -> None:
    """Each stage's rank waits for its own group; what they wait for in the end is rank 3."""
    found = collective_groups.list_waits([waits(0, "all_reduce", 5, [0, 1]), waits(1, "all_reduce", 8, [1, 3])])
    assert collective_groups.find_crossed_waits(found) is None
    assert [one.missing for one in collective_groups.find_incomplete(found)] == [(1,), (3,)]
    assert collective_groups.find_differing_roots(found) is None


def test_point_to_point_and_unknown_operations_are_no_group() -> None:
    assert (
        collective_groups.list_waits(
            [waits(0, "send 0->1", 5, [0, 1]), rank(1, stalled("all_reduce")), rank(2, stalled())]
        )
        == []
    )
    assert collective_groups.list_waits([waits(0, "all_reduce", 5, [1, 2])]) == [], (
        "it is no member of the group that it names"
    )
