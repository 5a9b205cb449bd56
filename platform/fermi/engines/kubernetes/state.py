"""Build an observation from an attempt's objects, and what its runners reported. Pure."""

from collections.abc import Mapping
from typing import Any, Literal

from fermi.engines import runner_reports
from fermi.engines.failure_cause import find_preparation
from fermi.engines.kubernetes import causes, names
from fermi.engines.kubernetes.gang import FINISHED_PHASES, Gang, Object, find_condition, get_phase, get_termination
from fermi.jobs.causes import CODE_PREPARING_CODES
from fermi.jobs.spec import Cause, Handle, Observation, Phase, RankStatus
from fermi.runner import first_failure
from fermi.runner.exit_codes import to_process_code

NodeReports = Mapping[int, Mapping[str, Any]]
"""Reports by node rank: the runner's last report of its ranks, and whether its pod's log has been read to its end."""


def build_observation(gang: Gang, handle: Handle, reports: NodeReports) -> Observation:
    """Return the observation. `left` is None where only the API server can confirm that nothing exists. UNKNOWN with a
    cause: it is the cause if the API server confirms that nothing lives."""
    if gang.is_empty():
        return Observation(Phase.ABSENT, None)
    if gang.root is None:  # it is being deleted, or the watch does not have it yet
        return Observation(Phase.UNKNOWN, True)
    ranks = _list_ranks(gang, handle, reports)
    successful = _has_succeeded(gang)
    left = _find_remains(gang, reports)
    if cause := causes.find_failure(gang, successful):
        return Observation(Phase.FAILED, left, ranks, cause)
    if successful:
        return Observation(Phase.SUCCEEDED, left, ranks)
    if missing := causes.find_vanished_node(gang):
        return Observation(Phase.UNKNOWN, left, ranks, missing)
    if gang.cancelled and not gang.alive() and not gang.list_unfinished():
        return Observation(Phase.FAILED if gang.submitted else Phase.ABSENT, left, ranks)
    begun = [pod for pod in gang.get_pods_by_node().values() if get_phase(pod) in ("Running", "Succeeded")]
    if gang.nodes and len(begun) == gang.nodes:
        unheard = causes.find_unread_log(gang, reports)
        if not unheard and not gang.cancelled and (readying := _find_preparation(gang, reports)):
            return Observation(Phase.STARTING, left, ranks, waiting=readying)
        return Observation(Phase.RUNNING, left, ranks, waiting=unheard)
    return Observation(Phase.STARTING, left, ranks, waiting=None if gang.cancelled else causes.find_waiting_cause(gang))


def _find_preparation(gang: Gang, reports: NodeReports) -> Cause | None:
    """Return what its nodes do before their ranks start, where it brings code: also a node whose log has not come
    yet."""
    if names.CODE not in gang.marks:
        return None
    first = {"code": CODE_PREPARING_CODES[0]}
    heard = [
        (pod, reports.get(rank, {}))
        for rank, pod in sorted(gang.get_pods_by_node().items())
        if get_phase(pod) not in FINISHED_PHASES
    ]
    return find_preparation(
        (causes.describe_pod(pod)["node"], said.get("doing") or first)
        for pod, said in heard
        if all(entry["state"] == "waiting" for entry in said.get("ranks", ()))
    )


def _has_succeeded(gang: Gang) -> bool:
    if gang.jobset and find_condition(gang.jobset, "Completed"):
        return True
    jobs = {names.get_node_rank(job): job for job in gang.jobs.values()}

    def done(node_rank: int) -> bool:
        pod = gang.pod(node_rank)
        if pod is not None and get_phase(pod) == "Succeeded":
            return True
        return node_rank in jobs and find_condition(jobs[node_rank], "Complete") is not None

    deciding = [0] if gang.marks.get(names.SUCCESS) == "head" and 0 in gang.places else gang.places
    return bool(gang.nodes) and all(done(node_rank) for node_rank in deciding)


def _find_remains(gang: Gang, reports: NodeReports) -> bool | None:
    """Return whether anything is left; None: not known. A pod that is over still counts until its log has been read:
    what follows is allowed to delete it."""
    if gang.alive() or gang.list_unfinished() or not (gang.cancelled or gang.submitted):
        return True
    if any(not reports.get(names.get_node_rank(pod), {}).get("drained") for pod in gang.pods.values()):
        return True
    complete = len(gang.get_pods_by_node()) == gang.nodes and not gang.cancelled
    return False if complete else None


def _list_ranks(gang: Gang, handle: Handle, reports: NodeReports) -> tuple[RankStatus, ...]:
    found: list[RankStatus] = []
    for node_rank in gang.places:
        pod = gang.pod(node_rank)
        if pod is not None:
            found += _list_pod_ranks(
                pod, node_rank, reports.get(node_rank, {}), node_rank not in gang.get_pods_by_node()
            )
    return tuple(sorted(found, key=lambda seen: seen.rank)) if len(found) <= handle.world_size else ()


def _list_pod_ranks(pod: Object, node_rank: int, report: Mapping[str, Any], gone: bool) -> list[RankStatus]:
    """Return the status of a pod's ranks: from the runner's own report; else its termination message; else the
    container's exit code, for all."""
    told = {entry["rank"]: entry for entry in report.get("ranks", ())}
    ended = get_termination(pod)
    over = gone or get_phase(pod) in FINISHED_PHASES or ended is not None
    at_the_end = {end.rank: end for end in causes.list_rank_ends(ended or {})}
    killed = to_process_code(int(ended.get("exitCode", 0))) if ended else None
    return [
        _build_rank_status(
            rank, node_rank, {**causes.read_rank_extras(ended or {}, rank), **told.get(rank, {})}, at_the_end.get(rank),
            over, killed, begun=get_phase(pod) != "Pending",
        )
        for rank in names.get_ranks(pod)
    ]  # fmt: skip


def _build_rank_status(
    rank: int, node_rank: int, entry: Mapping[str, Any], end: first_failure.RankEnd | None, over: bool, killed: int |
    None, begun: bool,
) -> RankStatus:  # fmt: skip
    state: Literal["waiting", "running", "exited"] = "running" if begun else "waiting"
    exit_code = entry.get("exit_code") if entry.get("exit_code") is not None or not end else end.exit_code
    if entry.get("state") in ("waiting", "exited"):
        state = entry["state"]
    if over:
        state = "exited"
        exit_code = killed if exit_code is None else exit_code
    return RankStatus(
        rank,
        node_rank,
        state,
        entry.get("pid"),
        exit_code,
        entry.get("ended_at") or (end.ended_at or None if end else None),
        bool(entry.get("asked") or (end and end.stop_requested)),
        entry.get("still_since") if state == "running" else None,
        entry.get("error"),
        entry.get("stalled") if state == "running" else None,
        entry.get("kill"),
        **runner_reports.parse_course(entry),
    )
