"""Ranks that make process groups of different sizes."""

import pytest

from fermi import messages
from fermi.diagnosis import Finding, Level, world_sizes
from fermi.diagnosis.stragglers import RankLocation
from fermi.jobs.spec import RankProgress

PLACES = {rank: RankLocation(rank // 2, f"env-{rank // 2}") for rank in range(4)}


def judge(*sizes: int | None) -> object:
    pulses = {rank: RankProgress(rank, 1e9, world_size=size) for rank, size in enumerate(sizes)}
    return world_sizes.find_differing_world_size(pulses, PLACES)


def test_a_rank_whose_world_size_differs_from_the_plan_is_named() -> None:
    pulses = {rank: RankProgress(rank, 1e9, world_size=5 if rank == 2 else 4) for rank in range(4)}
    finding = world_sizes.find_differing_world_size(pulses, PLACES)
    assert finding is not None
    assert (finding.level, [(one.rank, one.node) for one in finding.where]) == (Level.FAIL, [(2, "env-1")])
    message = messages.render_text(finding.code, "en", **finding.params)[0]
    assert message.startswith("Rank 2 on env-1 creates its process group with WORLD_SIZE 5, but the plan has 4")
    assert "WORLD_SIZE 5" in messages.render_text(finding.code, "zh", **finding.params)[0]


def test_nodes_whose_launchers_know_of_no_other_node_are_warned_of() -> None:
    def find(*sizes: int | None) -> Finding | None:
        pulses = {rank: RankProgress(rank, 1e9, world_size=size) for rank, size in enumerate(sizes)}
        return world_sizes.find_separate_nodes(pulses, PLACES)

    found = find(2, 2, 2, 2)
    assert found is not None
    assert (found.code, found.level, len(found.where)) == ("NODES_TRAIN_ALONE", Level.WARN, 4)
    assert "Each of the 2 nodes trains alone" in messages.render_text(found.code, "en", **found.params)[0]
    assert "2 个节点各自单独训练" in messages.render_text(found.code, "zh", **found.params)[0]
    assert [find(4, 4, 4, 4), find(2, 2, 2, None), find(1, 1, 1, 1), find(2, 2, 4, 4)] == [None] * 4
    one_node = {rank: RankLocation(0, "env-0") for rank in range(2)}
    pulses = {rank: RankProgress(rank, 1e9, world_size=2) for rank in range(2)}
    assert world_sizes.find_separate_nodes(pulses, one_node) is None


def test_ranks_that_join_by_local_rank_are_named_with_the_rank_they_use() -> None:
    finding = world_sizes.find_local_rank_as_rank({2: 0, 3: 1}, PLACES)
    assert finding is not None
    assert (finding.level, [(one.rank, one.node) for one in finding.where]) == (
        Level.FAIL, [(2, "env-1"), (3, "env-1")],
    )  # fmt: skip
    message = messages.render_text(finding.code, "en", **finding.params)[0]
    assert message == "Ranks 2, 3 join the process group as ranks 0, 1: the script passes LOCAL_RANK as `rank`."
    assert "rank 2, 3 以 rank 0, 1 的编号" in messages.render_text(finding.code, "zh", **finding.params)[0]
    early = world_sizes.find_local_rank_as_rank({2: 0}, PLACES)
    assert early is not None, "before the others have joined"


@pytest.mark.parametrize(
    "joined",
    [
        {},
        dict.fromkeys(range(4)),
        {0: 3, 1: 2, 2: 1, 3: 0},  # a script's own order
        {2: 1, 3: 0},  # not their LOCAL_RANK
        {7: 0},  # of no rank that is known
    ],
)
def test_ranks_numbered_by_the_script_are_no_finding(joined: dict[int, int | None]) -> None:
    assert world_sizes.find_local_rank_as_rank(joined, PLACES) is None


@pytest.mark.parametrize(
    "sizes",
    [
        (4, 4, 4, 4),
        (None, None, None, 4),
        (None, None, 5, None),  # who has the plan's number has not said so yet
        (2, 2, 2, 2),  # groups of a node each
        (None,) * 4,
    ],
)
def test_equal_or_unconnected_ranks_are_no_finding(sizes: tuple[int | None, ...]) -> None:
    assert judge(*sizes) is None
