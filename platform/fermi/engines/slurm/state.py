"""Build an observation from an attempt's folder, and what Slurm reports of its job. Pure.

The folder was read before Slurm was asked. So a job that Slurm does not list has been forgotten or was lost, and when
Slurm ends a job, its state is known here before the ranks' own ends can be taken for failures.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from fermi.engines.failure_cause import (
    HostLoss,
    build_rank_status,
    build_runner_cause,
    find_failure_cause,
    find_preparation,
)
from fermi.engines.inside import observation
from fermi.engines.slurm import causes
from fermi.engines.slurm.driver import SlurmJob
from fermi.engines.slurm.pending_queue import PendingQueue
from fermi.engines.slurm.rundir import RunDirContents
from fermi.jobs.spec import Cause, Handle, Observation, Phase, RankStatus

EMPTY_QUEUE = PendingQueue()
SETTLE_SECONDS = 5.0
"""How much later than Slurm a shared folder may show what a job wrote; its last file there shows that all of it has
arrived."""
LOST_SECONDS = 30.0
"""How long after the grace a runner counts as alive whose job Slurm does not know any more."""
_START_FAILURES = ("MASTER_UNREACHABLE", "NODES_MISSING")


def build_observation(
    contents: RunDirContents, jobs: Sequence[SlurmJob], handle: Handle, now: float, queue: PendingQueue = EMPTY_QUEUE
) -> Observation:
    """Return the observation of the attempt's job. `jobs`: all that Slurm lists under the attempt's name. `queue`:
    pending jobs of the cluster."""
    alive = [job for job in jobs if not has_job_ended(job)]
    if contents.order is None:
        if alive:  # its folder cannot be seen
            return Observation(Phase.UNKNOWN, True)
        return Observation(Phase.ABSENT, False if contents.stop is not None else None)
    mine = _list_components(contents, jobs)
    if alive:
        return _observe_live_job(contents, mine, alive, handle, queue, now)
    if mine:
        return _observe_ended_job(contents, mine, handle, now)
    if contents.submitted:
        return _observe_forgotten_job(contents, handle, now)
    return Observation(Phase.ABSENT, False if contents.stop is not None else None)


def build_inside_observation(
    contents: RunDirContents,
    jobs: Mapping[int, SlurmJob],
    steps: Collection[int],
    missing: Mapping[int, float],
    now: float,
) -> Observation:
    """Return the observation of the nodes inside of environments. `jobs`: the allocations that Slurm knows, by id;
    `steps`: nodes whose step Slurm lists; `missing`: since when it does not list those of others, by node rank, in unix
    seconds."""
    names = {rank: contents.node_name(rank) for rank in contents.inside}
    reports = {rank: _build_report(contents, rank, jobs, rank in steps, now) for rank in contents.inside}
    began, ended = contents.started_inside >= contents.inside, contents.stop is not None
    found = observation.build_observation(reports, names, began=began, ended=ended, head=False)
    if any(now - since < SETTLE_SECONDS for rank, since in missing.items() if reports[rank]["state"] == "lost"):
        return Observation(Phase.UNKNOWN, True, found.ranks)
    ending = {rank for rank, place in contents.places.items() if (job := jobs.get(place.job)) and not job.state}
    if ending & contents.started_inside and found.phase is not Phase.SUCCEEDED:  # by whom is not known
        return Observation(Phase.UNKNOWN, True, found.ranks)
    inner = replace(
        contents, statuses={rank: one for rank, one in contents.statuses.items() if rank in contents.inside}
    )
    cause = _find_slurm_end(contents, jobs) or _find_start_failure(inner)
    if cause is None or (found.phase is Phase.SUCCEEDED and not _list_stop_signals(inner)):
        return found
    return Observation(Phase.FAILED, found.left, found.ranks, cause)


def _build_report(
    contents: RunDirContents, rank: int, jobs: Mapping[int, SlurmJob], listed: bool, now: float
) -> dict[str, Any]:
    """Return a node's report as `inside.observation` takes it. `listed`: Slurm lists its step."""
    status, begun, place = contents.statuses.get(rank) or {}, rank in contents.started_inside, contents.places.get(rank)
    state = str(status.get("state") or ("starting" if begun or listed else ""))
    known = place is None or place.job in jobs
    if begun and not listed and state != "exited":
        state = "lost"
    late = contents.stop is not None and now > contents.stop["kill_at"] + LOST_SECONDS
    gone = not listed and (begun or contents.stop is not None) and (known or state in ("", "exited") or late)
    return {
        "state": state, "ranks": status.get("ranks") or (), "doing": status.get("doing"),
        "drained": gone,
    }  # fmt: skip


def _find_slurm_end(contents: RunDirContents, jobs: Mapping[int, SlurmJob]) -> Cause | None:
    """Return why a node inside ended, where Slurm or a user through it has ended it. A step that is signalled with
    SIGURG is near the time limit of its allocation; one that is asked to end was cancelled by itself."""
    for rank, place in sorted(contents.places.items()):
        status = contents.statuses.get(rank) or {}
        about = {
            "environment": contents.node_name(rank),
            "node": contents.node_name(rank),
            "nodeRank": rank,
            "job": place.job,
        }
        job = jobs.get(place.job)
        if job and rank in contents.started_inside and job.state in causes.END_STATES | causes.PENDING_STATES:
            return causes.explain_allocation_end(job, about)
        if contents.stop is not None:
            continue
        if asked := status.get("asked"):
            code, why = ("ALLOCATION_ENDED", "TIMEOUT") if asked == "SIGURG" else ("STEP_CANCELLED", str(asked))
            return Cause(code, {**about, "why": why})
        if job is None and rank in contents.started_inside and status.get("state") != "exited":
            return Cause("JOB_LOST", about)
    return None


def remove_inside_nodes(contents: RunDirContents, handle: Handle) -> tuple[RunDirContents, Handle]:
    """Return the folder's content and the handle without the nodes inside, for the attempt's own job."""
    known = contents.order["inside"] if contents.order and contents.inside else {}
    inner = sum(int(one["processes"]) for one in known.values())
    statuses = {rank: status for rank, status in contents.statuses.items() if rank not in contents.inside}
    return replace(contents, statuses=statuses), replace(handle, world_size=handle.world_size - inner)


def has_own_job(contents: RunDirContents) -> bool:
    """Return whether any node is not inside of an environment."""
    return contents.order is None or len(contents.inside) < len(contents.order["names"])


def _list_components(contents: RunDirContents, jobs: Sequence[SlurmJob]) -> list[SlurmJob]:
    """Return the components of the job that runs, or ran: the one that was first to start, else the newest."""
    leaders = {job.leader for job in jobs}
    leader = contents.begun if contents.begun in leaders else max(leaders, default=0)
    return sorted((job for job in jobs if job.leader == leader), key=lambda job: job.id)


def _observe_live_job(
    contents: RunDirContents,
    mine: list[SlurmJob],
    alive: list[SlurmJob],
    handle: Handle,
    queue: PendingQueue,
    now: float,
) -> Observation:
    ranks = _list_ranks(contents, over=False)
    if cause := _find_slurm_cause(mine):  # being ended
        return Observation(Phase.FAILED, True, ranks, cause)
    if _find_start_failure(contents) or any(rank.exit_code for rank in ranks):
        if any(not job.state for job in mine) or "SIGTERM" in _list_stop_signals(
            contents
        ):  # being ended, by whom is not known
            return Observation(Phase.UNKNOWN, True, ranks)
        return Observation(Phase.FAILED, True, ranks, _find_own_cause(contents, ranks))
    if _has_succeeded(contents, ranks, handle) and all(
        status["state"] == "exited" for status in contents.statuses.values()
    ):
        return Observation(Phase.SUCCEEDED, True, ranks)
    if len(ranks) == handle.world_size and all(rank.state != "waiting" for rank in ranks):
        return Observation(Phase.RUNNING, True, ranks)
    pending = [job for job in alive if job.state in causes.PENDING_STATES]
    waiting = causes.find_waiting_cause(pending[0], queue, now) if pending and contents.stop is None else None
    at = ((contents.node_name(rank), status.get("doing")) for rank, status in sorted(contents.statuses.items()))
    waiting = waiting or find_preparation(at)
    return Observation(Phase.STARTING, True, ranks, waiting=waiting)


def _observe_ended_job(contents: RunDirContents, mine: list[SlurmJob], handle: Handle, now: float) -> Observation:
    ranks = _list_ranks(contents, over=True)
    if _has_succeeded(contents, ranks, handle):
        return Observation(Phase.SUCCEEDED, False, ranks)
    if (cause := _find_slurm_cause(mine)) and not _is_own_cancel(contents, cause):
        return Observation(Phase.FAILED, False, ranks, cause)
    if cause := _find_own_cause(contents, ranks):
        return Observation(Phase.FAILED, False, ranks, cause)
    if contents.stop is not None:
        return Observation(Phase.FAILED if contents.begun else Phase.ABSENT, False, ranks)
    if contents.end is None and now - max(job.end for job in mine) < SETTLE_SECONDS:
        return Observation(Phase.UNKNOWN, True, ranks)
    if contents.begun == mine[0].leader and all(job.state == "COMPLETED" for job in mine):
        return Observation(Phase.SUCCEEDED, False, ranks)
    return Observation(Phase.FAILED, False, ranks, _find_script_failure(contents, mine[0]))


def _observe_forgotten_job(contents: RunDirContents, handle: Handle, now: float) -> Observation:
    """Return the observation of a job that Slurm does not list: it forgets a job some minutes after its end, and a
    crashed controller those that started after its last save."""
    ranks = _list_ranks(contents, over=contents.end is not None)
    written = len(contents.statuses) == len(contents.order["names"] if contents.order else ()) - len(contents.inside)
    done = contents.end is not None or (written and all(s["state"] == "exited" for s in contents.statuses.values()))
    if done and _has_succeeded(contents, ranks, handle):
        return Observation(Phase.SUCCEEDED, False, ranks)
    if done and (cause := _find_own_cause(contents, ranks)):
        return Observation(Phase.FAILED, False, ranks, cause)
    cause = Cause("JOB_LOST", {"job": contents.begun or contents.submitted})
    stopped = contents.stop is not None and (
        done
        or not any(status["state"] != "exited" for status in contents.statuses.values())
        or now > contents.stop["kill_at"] + LOST_SECONDS
    )
    left = False if done or stopped else None
    return Observation(Phase.FAILED, left, _list_ranks(contents, over=left is False), cause)


def has_job_ended(job: SlurmJob) -> bool:
    """Return whether a job is over; unknown states are not: nothing may happen because of them."""
    return job.state in causes.END_STATES and "COMPLETING" not in job.flags


def _find_slurm_cause(mine: Iterable[SlurmJob]) -> Cause | None:
    found = [cause for job in mine if (cause := causes.find_end_cause(job))]
    telling = [cause for cause in found if cause.code != "JOB_CANCELLED"]  # a component that fails ends the others
    return next(iter(telling or found), None)


def _is_own_cancel(contents: RunDirContents, cause: Cause) -> bool:
    """Return whether the platform cancelled the job."""
    return contents.stop is not None and cause.code == "JOB_CANCELLED"


def _list_stop_signals(contents: RunDirContents) -> set[str]:
    """Return the signals by which Slurm has asked for the end."""
    return {status["asked"] for status in contents.statuses.values() if status.get("asked")}


def _find_start_failure(contents: RunDirContents) -> Cause | None:
    for rank, status in sorted(contents.statuses.items()):
        if why := status.get("cause"):
            job = contents.places[rank].job if rank in contents.places else contents.begun
            about = {"node": contents.node_name(rank), "nodeRank": rank, "job": job}
            code = why["code"] if why["code"] in _START_FAILURES else "JOB_FAILED"
            return build_runner_cause(why, about) or Cause(
                code, {**why, **about, "why": why.get("evidence") or why["code"]}
            )
    return None


def _find_own_cause(contents: RunDirContents, ranks: Sequence[RankStatus]) -> Cause | None:
    """Return why the ranks failed. What they did after Slurm had asked for the end is not their failure: it warns of
    the time limit, and otherwise its own state gives the reason, unless a user had it send a signal."""
    if cause := _find_start_failure(contents):
        return cause
    failure = find_failure_cause(
        ranks, contents.node_name, _list_lost_nodes(contents) if contents.end is not None else ()
    )
    if (
        (asked := _list_stop_signals(contents))
        and contents.stop is None
        and (failure or all(rank.state == "exited" for rank in ranks))
    ):
        code = "TIME_LIMIT" if "SIGURG" in asked else "JOB_CANCELLED"
        return Cause(code, {"job": contents.begun, "nodes": "", "why": ", ".join(sorted(asked))})
    return failure


def _find_script_failure(contents: RunDirContents, job: SlurmJob) -> Cause:
    """Return the cause of a script that came to its end while no rank failed: a runner was killed, or there never was
    one."""
    if lost := _list_lost_nodes(contents):
        return lost[0].cause
    return Cause("JOB_FAILED", {"job": job.leader, "why": contents.tail or f"exit code {job.exit_code}"})


def _list_lost_nodes(contents: RunDirContents) -> list[HostLoss]:
    """Return the nodes whose runner did not live to write its end; only once all that was written has arrived."""
    return [
        HostLoss(Cause("RUNNER_LOST", {"nodeRank": rank, "node": contents.node_name(rank)}))
        for rank, status in sorted(contents.statuses.items())
        if status["state"] != "exited" and not status.get("asked")
    ]


def _has_succeeded(contents: RunDirContents, ranks: Sequence[RankStatus], handle: Handle) -> bool:
    """Return whether all ranks ended with 0. One that ends because Slurm asks has not come to its end, whatever its
    exit code."""
    return (
        not _list_stop_signals(contents)
        and len(ranks) == handle.world_size
        and all(rank.state == "exited" and rank.exit_code == 0 for rank in ranks)
    )


def _list_ranks(contents: RunDirContents, *, over: bool) -> tuple[RankStatus, ...]:
    """Return the status of all ranks. `over`: nothing of the attempt lives, whatever was written last."""
    return tuple(
        _build_rank_status(entry, node_rank, over)
        for node_rank, status in sorted(contents.statuses.items())
        for entry in status["ranks"]
    )


def _build_rank_status(entry: dict[str, Any], node_rank: int, over: bool) -> RankStatus:
    seen = build_rank_status(entry, node_rank)
    return replace(seen, state="exited") if over and seen.state == "running" else seen
