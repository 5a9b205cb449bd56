"""Detects ranks that make a process group of another size, or join it as another rank, from their progress. Pure.

Ranks that wait for different numbers of others never meet, or make different groups. A script that makes a group of
another size on purpose does so on all ranks: only where some have the plan's number and others have not, something is
wrong. Groups that are as large as their node each are those of launchers which know of one node alone: a warning. A
script may number its ranks anew, but where they join a group of the plan's size by their LOCAL_RANK and there are
several nodes, two ranks have one number.
"""

from collections import Counter
from collections.abc import Mapping

from fermi.diagnosis import Finding, Level, Where
from fermi.diagnosis.actions import ActionCode, build_action
from fermi.diagnosis.collective_groups import format_names
from fermi.diagnosis.stragglers import RankLocation
from fermi.jobs.spec import RankProgress

DIFFERS, TWICE, ALONE = "WORLD_SIZE_DIFFERS", "LOCAL_RANK_AS_RANK", "NODES_TRAIN_ALONE"
MAX_NAMED = 16


def find_differing_world_size(pulses: Mapping[int, RankProgress], places: Mapping[int, RankLocation]) -> Finding | None:
    """Return a finding that names the ranks whose world size is not the plan's; None: there are none. `places`: of all
    the plan's ranks."""
    planned, wrong = len(places), []
    for rank, pulse in sorted(pulses.items()):
        if pulse.world_size and pulse.world_size != planned:
            wrong.append((rank, pulse.world_size))
    if not wrong or not any(pulse.world_size == planned for pulse in pulses.values()):
        return None
    (first, found), *_ = wrong
    at = places.get(first, RankLocation(0, "?"))
    ranks = ", ".join(str(rank) for rank, _ in wrong[:MAX_NAMED]) + (", …" if len(wrong) > MAX_NAMED else "")
    params = {"rank": first, "node": at.node, "nodeRank": at.node_rank, "ranks": ranks, "found": found, "plan": planned}
    where = [Where(rank, place.node_rank, place.node) for rank, _ in wrong[:MAX_NAMED] if (place := places.get(rank))]
    actions = [
        build_action(ActionCode.EDIT_SCRIPT),
        build_action(ActionCode.SEE_LOG, rank=first),
        build_action(ActionCode.STOP),
    ]
    return Finding(DIFFERS, Level.FAIL, params, where=where, actions=actions)


def find_separate_nodes(pulses: Mapping[int, RankProgress], places: Mapping[int, RankLocation]) -> Finding | None:
    """Return a warning if all ranks of several nodes have joined groups, each as large as the rank's node; None: they
    have not."""
    sizes = Counter(place.node_rank for place in places.values())
    joined = {rank: pulse.world_size for rank, pulse in pulses.items() if pulse.world_size}
    if len(sizes) < 2 or joined.keys() != places.keys():
        return None
    if any(size != sizes[places[rank].node_rank] or size < 2 for rank, size in joined.items()):
        return None
    found = format_names(sorted(set(joined.values())))
    where = [Where(rank, place.node_rank, place.node) for rank, place in sorted(places.items())[:MAX_NAMED]]
    actions = [build_action(ActionCode.EDIT_SCRIPT), build_action(ActionCode.STOP)]
    params = {"nodes": len(sizes), "found": found, "plan": len(places)}
    return Finding(ALONE, Level.WARN, params, where=where, actions=actions)


def find_local_rank_as_rank(joined: Mapping[int, int | None], places: Mapping[int, RankLocation]) -> Finding | None:
    """Return a finding that names the ranks which joined by their LOCAL_RANK, and so as ranks of another node; None:
    there are none. `joined`: as which rank each joins the group of all, where that is not its own; `places`: of all the
    plan's ranks."""
    wrong = {rank: other for rank, other in sorted(joined.items()) if other is not None and rank in places}
    if not wrong or any(other != _get_local_rank(rank, places) or other in wrong for rank, other in wrong.items()):
        return None
    first = next(iter(wrong))
    at = places[first]
    params = {
        "rank": first, "node": at.node, "nodeRank": at.node_rank,
        "ranks": format_names(list(wrong)), "found": format_names(sorted(set(wrong.values()))),
    }  # fmt: skip
    where = [Where(rank, places[rank].node_rank, places[rank].node) for rank in list(wrong)[:MAX_NAMED]]
    actions = [
        build_action(ActionCode.EDIT_SCRIPT),
        build_action(ActionCode.SEE_LOG, rank=first),
        build_action(ActionCode.STOP),
    ]
    return Finding(TWICE, Level.FAIL, params, where=where, actions=actions)


def _get_local_rank(rank: int, places: Mapping[int, RankLocation]) -> int:
    return sorted(one for one, place in places.items() if place.node_rank == places[rank].node_rank).index(rank)
