"""Build an observation from the reports of an attempt's nodes inside of environments, and merge the parts of an attempt
that runs inside as well as beside. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from fermi.engines.failure_cause import HostLoss, build_rank_status, find_failure_cause, find_preparation
from fermi.jobs.spec import Cause, Observation, Phase, RankStatus
from fermi.runner import first_failure

START_FAILURES = frozenset({"MASTER_UNREACHABLE", "NODES_MISSING", "START_FAILED"})
"""Causes that `fermi.runner.inside` itself reports before its ranks start."""
NodeReport = Mapping[str, Any]


def build_observation(
    reports: Mapping[int, NodeReport], names: Mapping[int, str], *, began: bool, ended: bool, head: bool
) -> Observation:
    """Return the observation of the nodes inside. `reports`: of each node, by its rank, empty while nothing was
    received; `names`: of their environments. `began`: every node was told to start; `ended`: the attempt is being
    cancelled; `head`: node 0 alone decides whether it succeeds."""
    ranks = tuple(
        build_rank_status(entry, node_rank)
        for node_rank, report in sorted(reports.items())
        for entry in report.get("ranks", ())
    )
    left = _find_remains(reports.values(), ended)
    if cause := _find_cause(reports, names, ranks, began and not ended):
        return Observation(Phase.FAILED, left, ranks, cause)
    states = [str(report.get("state") or "") for _, report in sorted(reports.items())]
    deciding = [reports[0]] if head and 0 in reports else list(reports.values())
    if deciding and all(_has_succeeded(report) for report in deciding):
        return Observation(Phase.SUCCEEDED, left, ranks)
    if ended and left is False:
        return Observation(Phase.FAILED if ranks else Phase.ABSENT, left, ranks)
    if not any(states) and not began:
        return Observation(Phase.ABSENT, None)
    waits = _find_silence(reports, names)
    if all(state in ("running", "exited") for state in states):
        return Observation(Phase.RUNNING, left, ranks, waiting=waits)
    at = ((names[node_rank], report.get("doing")) for node_rank, report in sorted(reports.items()))
    return Observation(Phase.STARTING, left, ranks, waiting=waits or (None if ended else find_preparation(at)))


def _find_remains(reports: Iterable[NodeReport], ended: bool) -> bool | None:
    """Return whether anything is left; None: not known. A node counts as gone once all that it printed was received.
    One that never started counts once it never can."""
    each: list[bool | None] = []
    for report in reports:
        if report.get("drained"):
            each.append(False)
        elif report.get("state") or not ended:
            each.append(True)
        else:
            each.append(None)
    return True if True in each else None if None in each else False


def _has_succeeded(report: NodeReport) -> bool:
    ranks = report.get("ranks") or ()
    return bool(report.get("state") == "exited" and ranks) and all(one["exit_code"] == 0 for one in ranks)


def _find_cause(
    reports: Mapping[int, NodeReport], names: Mapping[int, str], ranks: Sequence[RankStatus], counts: bool
) -> Cause | None:
    """Return why the attempt failed; None: it has not. `counts`: whether a node that does not exist any more explains
    anything."""
    losses = []
    for node_rank, report in sorted(reports.items()):
        about = {"nodeRank": node_rank, "node": names[node_rank]}
        if (gone := report.get("gone")) and not _has_ended(report):
            losses.append(HostLoss(Cause(str(gone["code"]), {**(gone.get("params") or {}), **about}), gone.get("at")))
        elif report.get("restarted") or (counts and report.get("state") == "absent"):
            losses.append(HostLoss(Cause("CONTAINER_RESTARTED", about)))
        elif report.get("state") == "lost":
            losses.append(HostLoss(Cause("RUNNER_LOST", about)))
        elif heard := report.get("asked_at"):
            losses.append(HostLoss(Cause("RUNNER_TERMINATED", about), heard + first_failure.CAUSE_TOLERANCE_SECONDS))
        if (words := report.get("cause")) and words.get("code") in START_FAILURES:
            params = {name: value for name, value in words.items() if name != "code"}
            params = {"why": words["code"], "detail": words.get("evidence", ""), **params}
            return Cause(words["code"], {**params, **about})
    said = ((node_rank, report.get("cause")) for node_rank, report in sorted(reports.items()))
    return find_failure_cause(ranks, names.__getitem__, losses, said)


def _has_ended(report: NodeReport) -> bool:
    """Return whether all ranks of a node had ended before its container did."""
    ranks = report.get("ranks") or ()
    return bool(ranks) and all(one["state"] == "exited" for one in ranks)


def _find_silence(reports: Mapping[int, NodeReport], names: Mapping[int, str]) -> Cause | None:
    for node_rank, report in sorted(reports.items()):
        if why := report.get("silence"):
            about = {"nodeRank": node_rank, "node": names[node_rank], "environment": names[node_rank]}
            return Cause("INSIDE_SILENT", {**about, "why": why})
    return None


def merge_observations(observation: Observation, other: Observation) -> Observation:
    """Return the observation of an attempt from those of its parts: the failure that came first, or else the phase of
    the part that is behind."""
    ranks = tuple(sorted((*observation.ranks, *other.ranks), key=lambda seen: seen.rank))
    left = True if True in (observation.left, other.left) else None if None in (observation.left, other.left) else False
    failed = [part for part in (observation, other) if part.phase is Phase.FAILED]
    if failed:
        first = min(failed, key=_get_first_end)
        return replace(first, left=left, ranks=ranks)
    phase = min((observation.phase, other.phase), key=_PHASE_ORDER.index)
    return Observation(phase, left, ranks, waiting=observation.waiting or other.waiting)


def _get_first_end(part: Observation) -> float:
    return min((seen.ended_at for seen in part.ranks if seen.ended_at), default=float("inf"))


_PHASE_ORDER = [Phase.UNKNOWN, Phase.ABSENT, Phase.STARTING, Phase.RUNNING, Phase.SUCCEEDED, Phase.FAILED]
