"""Whether ranks that hold GPUs train without them: from their pulses, look after look. Pure.

GPU_NOT_USED    A rank on a node with GPUs advances, and none of its processes has a GPU open, at all looks of `LASTING`
                seconds. It is over once all of these ranks have.

Many scripts go on with the CPU without a word: `torch.device("cuda" if torch.cuda.is_available() else "cpu")`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from fermi.launch.diagnosis import Finding, Level, Where
from fermi.launch.diagnosis.actions import Do, take
from fermi.launch.diagnosis.slow import STALE, News, Place
from fermi.launch.spec import PulseSeen

GPU_NOT_USED = "GPU_NOT_USED"
LASTING = 12.0
"""Longer than a runner's time from look to look (`fermi.runner.gpus.OPEN_SECONDS`)."""
MAX_NAMED = 16


@dataclass(slots=True)
class History:
    """What is remembered of one attempt: by rank, since when it is seen without a GPU. `told`: the ranks named."""

    since: dict[int, float] = field(default_factory=dict)
    told: tuple[int, ...] = ()


def judge(history: History, pulses: Mapping[int, PulseSeen], places: Mapping[int, Place], moment: float) -> News:
    """Returns a finding with the ranks, where they are others than before. `moment`: unix seconds; `places`: of the
    ranks on nodes with GPUs. `history` is brought up to date."""
    for rank, pulse in pulses.items():
        if pulse.gpu_open is False and rank in places and moment - pulse.at < STALE:
            history.since.setdefault(rank, moment)
        elif pulse.gpu_open:
            history.since.pop(rank, None)
    without = tuple(sorted(rank for rank, since in history.since.items() if moment - since >= LASTING))
    if without == history.told:
        return News()
    before, history.told = history.told, without
    if not without:
        return News(over=[GPU_NOT_USED] if before else ())
    return News([_finding(without, pulses, places, min(history.since.values()))])


def _finding(
    ranks: tuple[int, ...], pulses: Mapping[int, PulseSeen], places: Mapping[int, Place], since: float
) -> Finding:
    first, at = ranks[0], places[ranks[0]]
    named = ", ".join(str(rank) for rank in ranks[:MAX_NAMED]) + (", …" if len(ranks) > MAX_NAMED else "")
    params = {"rank": first, "node": at.node, "nodeRank": at.node_rank, "ranks": named, "count": len(ranks)}
    if any(pulses[rank].cpu_build for rank in ranks if rank in pulses):
        params["cpuBuild"] = True
    where = [Where(rank, places[rank].node_rank, places[rank].node) for rank in ranks[:MAX_NAMED]]
    actions = [take(Do.EDIT_SCRIPT), take(Do.SEE_LOG, rank=first), take(Do.STOP)]
    return Finding(GPU_NOT_USED, Level.WARN, params, where=where, since=since, actions=actions)
