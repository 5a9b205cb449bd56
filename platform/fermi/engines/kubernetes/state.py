"""Build an observation from an attempt's objects, and what its runners reported. Pure."""

from collections.abc import Mapping
from typing import Any, Literal

from fermi.engines import runner_reports
from fermi.engines.failure_cause import making_ready
from fermi.engines.kubernetes import causes, names
from fermi.engines.kubernetes.gang import FINISHED, Gang, Object, condition, phase, terminated
from fermi.jobs.causes import READYING
from fermi.jobs.spec import Cause, Handle, Observation, Phase, RankSeen
from fermi.runner import first_failure
from fermi.runner.exit_codes import as_process

Reports = Mapping[int, Mapping[str, Any]]
"""Reports by node rank: the runner's last report of its ranks, and whether its pod's log has been read to its end."""


def observe(gang: Gang, handle: Handle, reports: Reports) -> Observation:
    """Return the observation. `left` is None where only the API server can confirm that nothing exists. UNKNOWN with a
    cause: it is the cause if the API server confirms that nothing lives."""
    if gang.is_empty():
        return Observation(Phase.ABSENT, None)
    if gang.root is None:  # it is being deleted, or the watch does not have it yet
        return Observation(Phase.UNKNOWN, True)
    ranks = _ranks(gang, handle, reports)
    successful = _succeeded(gang)
    left = _left(gang, reports)
    if cause := causes.failure(gang, successful):
        return Observation(Phase.FAILED, left, ranks, cause)
    if successful:
        return Observation(Phase.SUCCEEDED, left, ranks)
    if missing := causes.vanished(gang):
        return Observation(Phase.UNKNOWN, left, ranks, missing)
    if gang.cancelled and not gang.alive() and not gang.unfinished():
        return Observation(Phase.FAILED if gang.submitted else Phase.ABSENT, left, ranks)
    begun = [pod for pod in gang.by_node().values() if phase(pod) in ("Running", "Succeeded")]
    if gang.nodes and len(begun) == gang.nodes:
        unheard = causes.unheard(gang, reports)
        if not unheard and not gang.cancelled and (readying := _readying(gang, reports)):
            return Observation(Phase.STARTING, left, ranks, waiting=readying)
        return Observation(Phase.RUNNING, left, ranks, waiting=unheard)
    return Observation(Phase.STARTING, left, ranks, waiting=None if gang.cancelled else causes.waiting(gang))


def _readying(gang: Gang, reports: Reports) -> Cause | None:
    """Return what its nodes do before their ranks start, where it brings code: also a node whose log has not come
    yet."""
    if names.CODE not in gang.marks:
        return None
    first = {"code": READYING[0]}
    heard = [(pod, reports.get(rank, {})) for rank, pod in sorted(gang.by_node().items()) if phase(pod) not in FINISHED]
    return making_ready(
        (causes.where(pod)["node"], said.get("doing") or first)
        for pod, said in heard
        if all(entry["state"] == "waiting" for entry in said.get("ranks", ()))
    )


def _succeeded(gang: Gang) -> bool:
    if gang.jobset and condition(gang.jobset, "Completed"):
        return True
    jobs = {names.node_rank(job): job for job in gang.jobs.values()}

    def done(node_rank: int) -> bool:
        pod = gang.pod(node_rank)
        if pod is not None and phase(pod) == "Succeeded":
            return True
        return node_rank in jobs and condition(jobs[node_rank], "Complete") is not None

    deciding = [0] if gang.marks.get(names.SUCCESS) == "head" and 0 in gang.places else gang.places
    return bool(gang.nodes) and all(done(node_rank) for node_rank in deciding)


def _left(gang: Gang, reports: Reports) -> bool | None:
    """Return whether anything is left; None: not known. A pod that is over still counts until its log has been read:
    what follows is allowed to delete it."""
    if gang.alive() or gang.unfinished() or not (gang.cancelled or gang.submitted):
        return True
    if any(not reports.get(names.node_rank(pod), {}).get("drained") for pod in gang.pods.values()):
        return True
    complete = len(gang.by_node()) == gang.nodes and not gang.cancelled
    return False if complete else None


def _ranks(gang: Gang, handle: Handle, reports: Reports) -> tuple[RankSeen, ...]:
    found: list[RankSeen] = []
    for node_rank in gang.places:
        pod = gang.pod(node_rank)
        if pod is not None:
            found += _ranks_of(pod, node_rank, reports.get(node_rank, {}), node_rank not in gang.by_node())
    return tuple(sorted(found, key=lambda seen: seen.rank)) if len(found) <= handle.world_size else ()


def _ranks_of(pod: Object, node_rank: int, report: Mapping[str, Any], gone: bool) -> list[RankSeen]:
    """Return the status of a pod's ranks: from the runner's own report; else its termination message; else the
    container's exit code, for all."""
    told = {entry["rank"]: entry for entry in report.get("ranks", ())}
    ended = terminated(pod)
    over = gone or phase(pod) in FINISHED or ended is not None
    at_the_end = {end.rank: end for end in causes.ends(ended or {})}
    killed = as_process(int(ended.get("exitCode", 0))) if ended else None
    return [
        _rank(
            rank, node_rank, {**causes.news(ended or {}, rank), **told.get(rank, {})}, at_the_end.get(rank),
            over, killed, begun=phase(pod) != "Pending",
        )
        for rank in names.ranks(pod)
    ]  # fmt: skip


def _rank(
    rank: int, node_rank: int, entry: Mapping[str, Any], end: first_failure.End | None, over: bool, killed: int | None,
    begun: bool,
) -> RankSeen:  # fmt: skip
    state: Literal["waiting", "running", "exited"] = "running" if begun else "waiting"
    exit_code = entry.get("exit_code") if entry.get("exit_code") is not None or not end else end.exit_code
    if entry.get("state") in ("waiting", "exited"):
        state = entry["state"]
    if over:
        state = "exited"
        exit_code = killed if exit_code is None else exit_code
    return RankSeen(
        rank,
        node_rank,
        state,
        entry.get("pid"),
        exit_code,
        entry.get("ended_at") or (end.ended_at or None if end else None),
        bool(entry.get("asked") or (end and end.asked)),
        entry.get("still_since") if state == "running" else None,
        entry.get("error"),
        entry.get("stalled") if state == "running" else None,
        entry.get("kill"),
        **runner_reports.course(entry),
    )
