"""Detects ranks that hold GPUs and train without them, from their progress, look after look. Pure.

GPU_NOT_USED    A rank on a node with GPUs advances, and none of its processes has a GPU open, at all looks of
                `LASTING_SECONDS` seconds. It is over once all of these ranks have.

Many scripts fall back to the CPU silently: `torch.device("cuda" if torch.cuda.is_available() else "cpu")`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from fermi.diagnosis import Finding, Level, Where
from fermi.diagnosis.actions import ActionCode, build_action
from fermi.diagnosis.collective_groups import MAX_NAMED, format_names
from fermi.diagnosis.stragglers import STALE_SECONDS, FindingChanges, RankLocation
from fermi.jobs.spec import RankProgress

GPU_NOT_USED = "GPU_NOT_USED"
LASTING_SECONDS = 12.0
"""Longer than a runner's time between looks (`fermi.runner.gpus.OPEN_CHECK_SECONDS`): two looks found it so."""


@dataclass(slots=True)
class UnusedGpuHistory:
    """What is kept of one attempt: by rank, since when it is seen without a GPU. `reported`: the ranks that were
    reported."""

    since: dict[int, float] = field(default_factory=dict)
    reported: tuple[int, ...] = ()


def detect_unused_gpus(
    history: UnusedGpuHistory, pulses: Mapping[int, RankProgress], places: Mapping[int, RankLocation], now: float
) -> FindingChanges:
    """Return a finding with the ranks, where they differ from those reported before. The time is in unix seconds;
    `places`: of the ranks on nodes with GPUs. `history` is updated."""
    found = []
    for rank in sorted(places):
        pulse = pulses.get(rank)
        if pulse is None or now - pulse.at >= STALE_SECONDS:  # nobody knows how it is now
            lasts = rank in history.reported
        elif pulse.gpu_open is False:
            lasts = now - history.since.setdefault(rank, now) >= LASTING_SECONDS
        else:
            history.since.pop(rank, None)
            lasts = False
        if lasts:
            found.append(rank)
    without = tuple(found)
    if without == history.reported:
        return FindingChanges()
    before, history.reported = history.reported, without
    if not without:
        return FindingChanges(resolved=[GPU_NOT_USED] if before else ())
    return FindingChanges([_build_finding(without, pulses, places, min(history.since[rank] for rank in without))])


def _build_finding(
    ranks: tuple[int, ...], pulses: Mapping[int, RankProgress], places: Mapping[int, RankLocation], since: float
) -> Finding:
    first, at = ranks[0], places[ranks[0]]
    params = {"rank": first, "node": at.node, "nodeRank": at.node_rank, "ranks": format_names(ranks)}
    if any(pulses[rank].cpu_build for rank in ranks if rank in pulses):
        params["cpuBuild"] = True
    where = [Where(rank, places[rank].node_rank, places[rank].node) for rank in ranks[:MAX_NAMED]]
    actions = [
        build_action(ActionCode.EDIT_SCRIPT),
        build_action(ActionCode.SEE_LOG, rank=first),
        build_action(ActionCode.STOP),
    ]
    return Finding(GPU_NOT_USED, Level.WARN, params, where=where, since=since, actions=actions)
