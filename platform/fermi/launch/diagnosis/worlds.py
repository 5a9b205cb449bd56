"""Whether all ranks make a process group of the same size: from their pulses. Pure.

Ranks that wait for different numbers of others never meet, or make different groups. A script that rightly makes a
group of its own size (of a node, say) does so on all ranks: only where some have the plan's number and others have
not, something is wrong.
"""

from collections.abc import Mapping

from fermi.launch.diagnosis import Finding, Level, Where
from fermi.launch.diagnosis.actions import Do, take
from fermi.launch.diagnosis.slow import Place
from fermi.launch.spec import PulseSeen

DIFFERS = "WORLD_SIZE_DIFFERS"
MAX_NAMED = 16


def judge(pulses: Mapping[int, PulseSeen], places: Mapping[int, Place]) -> Finding | None:
    """Returns a finding that names the ranks whose number is not the plan's; `places`: of all the plan's ranks."""
    planned, wrong = len(places), []
    for rank, pulse in sorted(pulses.items()):
        if pulse.world_size and pulse.world_size != planned:
            wrong.append((rank, pulse.world_size))
    if not wrong or not any(pulse.world_size == planned for pulse in pulses.values()):
        return None
    (first, found), *_ = wrong
    at = places.get(first, Place(0, "?"))
    ranks = ", ".join(str(rank) for rank, _ in wrong[:MAX_NAMED]) + (", …" if len(wrong) > MAX_NAMED else "")
    params = {"rank": first, "node": at.node, "nodeRank": at.node_rank, "ranks": ranks, "found": found, "plan": planned}
    where = [Where(rank, place.node_rank, place.node) for rank, _ in wrong[:MAX_NAMED] if (place := places.get(rank))]
    actions = [take(Do.EDIT_SCRIPT), take(Do.SEE_LOG, rank=first), take(Do.STOP)]
    return Finding(DIFFERS, Level.FAIL, params, where=where, actions=actions)
