"""Build an observation from an attempt's folder, and what Slurm reports of its job. Pure.

The folder was read before Slurm was asked. So a job that Slurm does not list has been forgotten or was lost, and when
Slurm ends a job, its state is known here before the ranks' own ends can be taken for failures.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from fermi.engines.failure_cause import Loss, by_runner, cause_of_failure, making_ready, rank_seen
from fermi.engines.inside import observation as in_environments
from fermi.engines.slurm import causes
from fermi.engines.slurm.driver import Job
from fermi.engines.slurm.pending_queue import Line
from fermi.engines.slurm.rundir import Seen
from fermi.jobs.spec import Cause, Handle, Observation, Phase, RankSeen

NOBODY = Line()
SETTLE_SECONDS = 5.0
"""How much later than Slurm a shared folder may show what a job wrote; its last file there shows that all of it has
arrived."""
LOST_SECONDS = 30.0
"""How long after the grace a runner counts as alive whose job Slurm does not know any more."""
_GAVE_UP = ("MASTER_UNREACHABLE", "NODES_MISSING")


def observe(seen: Seen, jobs: Sequence[Job], handle: Handle, now: float, line: Line = NOBODY) -> Observation:
    """Return the observation of the attempt's job. `jobs`: all that Slurm lists under the attempt's name. `queue`:
    pending jobs of the cluster."""
    alive = [job for job in jobs if not is_over(job)]
    if seen.order is None:
        if alive:  # its folder cannot be seen
            return Observation(Phase.UNKNOWN, True)
        return Observation(Phase.ABSENT, False if seen.stop is not None else None)
    mine = _mine(seen, jobs)
    if alive:
        return _alive(seen, mine, alive, handle, line, now)
    if mine:
        return _over(seen, mine, handle, now)
    if seen.submitted:
        return _forgotten(seen, handle, now)
    return Observation(Phase.ABSENT, False if seen.stop is not None else None)


def observe_inside(
    seen: Seen, jobs: Mapping[int, Job], steps: Collection[int], missing: Mapping[int, float], now: float
) -> Observation:
    """Return the observation of the nodes inside of environments. `jobs`: the allocations that Slurm knows, by id;
    `steps`: nodes whose step Slurm lists; `missing`: since when it does not list those of others, by node rank, in unix
    seconds."""
    names = {rank: seen.node_name(rank) for rank in seen.inside}
    reports = {rank: _report(seen, rank, jobs, rank in steps, now) for rank in seen.inside}
    began, ended = seen.begun_inside >= seen.inside, seen.stop is not None
    found = in_environments.observe(reports, names, began=began, ended=ended, head=False)
    if any(now - since < SETTLE_SECONDS for rank, since in missing.items() if reports[rank]["state"] == "lost"):
        return Observation(Phase.UNKNOWN, True, found.ranks)
    ending = {rank for rank, place in seen.places.items() if (job := jobs.get(place.job)) and not job.state}
    if ending & seen.begun_inside and found.phase is not Phase.SUCCEEDED:  # by whom is not known
        return Observation(Phase.UNKNOWN, True, found.ranks)
    inner = replace(seen, statuses={rank: one for rank, one in seen.statuses.items() if rank in seen.inside})
    cause = _ended_by_slurm(seen, jobs) or _gave_up(inner)
    if cause is None or (found.phase is Phase.SUCCEEDED and not _asked(inner)):
        return found
    return Observation(Phase.FAILED, found.left, found.ranks, cause)


def _report(seen: Seen, rank: int, jobs: Mapping[int, Job], listed: bool, now: float) -> dict[str, Any]:
    """Return a node's report as `inside.observation` takes it. `listed`: Slurm lists its step."""
    status, begun, place = seen.statuses.get(rank) or {}, rank in seen.begun_inside, seen.places.get(rank)
    state = str(status.get("state") or ("starting" if begun or listed else ""))
    known = place is None or place.job in jobs
    if begun and not listed and state != "exited":
        state = "lost"
    late = seen.stop is not None and now > seen.stop["kill_at"] + LOST_SECONDS
    gone = not listed and (begun or seen.stop is not None) and (known or state in ("", "exited") or late)
    return {
        "state": state, "ranks": status.get("ranks") or (), "doing": status.get("doing"),
        "drained": gone,
    }  # fmt: skip


def _ended_by_slurm(seen: Seen, jobs: Mapping[int, Job]) -> Cause | None:
    """Return why a node inside ended, where Slurm or a user through it has ended it. A step that is signalled with
    SIGURG is near the time limit of its allocation; one that is asked to end was cancelled by itself."""
    for rank, place in sorted(seen.places.items()):
        status = seen.statuses.get(rank) or {}
        about = {"environment": seen.node_name(rank), "node": seen.node_name(rank), "nodeRank": rank, "job": place.job}
        job = jobs.get(place.job)
        if job and rank in seen.begun_inside and job.state in causes.OVER | causes.WAITS:
            return causes.allocation_ended(job, about)
        if seen.stop is not None:
            continue
        if asked := status.get("asked"):
            code, why = ("ALLOCATION_ENDED", "TIMEOUT") if asked == "SIGURG" else ("STEP_CANCELLED", str(asked))
            return Cause(code, {**about, "why": why})
        if job is None and rank in seen.begun_inside and status.get("state") != "exited":
            return Cause("JOB_LOST", about)
    return None


def without_inside(seen: Seen, handle: Handle) -> tuple[Seen, Handle]:
    """Return the folder's content and the handle without the nodes inside, for the attempt's own job."""
    known = seen.order["inside"] if seen.order and seen.inside else {}
    inner = sum(int(one["processes"]) for one in known.values())
    statuses = {rank: status for rank, status in seen.statuses.items() if rank not in seen.inside}
    return replace(seen, statuses=statuses), replace(handle, world_size=handle.world_size - inner)


def has_own_job(seen: Seen) -> bool:
    """Return whether any node is not inside of an environment."""
    return seen.order is None or len(seen.inside) < len(seen.order["names"])


def _mine(seen: Seen, jobs: Sequence[Job]) -> list[Job]:
    """Return the components of the job that runs, or ran: the one that was first to start, else the newest."""
    leaders = {job.leader for job in jobs}
    leader = seen.begun if seen.begun in leaders else max(leaders, default=0)
    return sorted((job for job in jobs if job.leader == leader), key=lambda job: job.id)


def _alive(seen: Seen, mine: list[Job], alive: list[Job], handle: Handle, line: Line, now: float) -> Observation:
    ranks = _ranks(seen, over=False)
    if cause := _by_slurm(mine):  # being ended
        return Observation(Phase.FAILED, True, ranks, cause)
    if _gave_up(seen) or any(rank.exit_code for rank in ranks):
        if any(not job.state for job in mine) or "SIGTERM" in _asked(seen):  # being ended, by whom is not known
            return Observation(Phase.UNKNOWN, True, ranks)
        return Observation(Phase.FAILED, True, ranks, _own(seen, ranks))
    if _succeeded(seen, ranks, handle) and all(status["state"] == "exited" for status in seen.statuses.values()):
        return Observation(Phase.SUCCEEDED, True, ranks)
    if len(ranks) == handle.world_size and all(rank.state != "waiting" for rank in ranks):
        return Observation(Phase.RUNNING, True, ranks)
    pending = [job for job in alive if job.state in causes.WAITS]
    waiting = causes.waiting(pending[0], line, now) if pending and seen.stop is None else None
    at = ((seen.node_name(rank), status.get("doing")) for rank, status in sorted(seen.statuses.items()))
    waiting = waiting or making_ready(at)
    return Observation(Phase.STARTING, True, ranks, waiting=waiting)


def _over(seen: Seen, mine: list[Job], handle: Handle, now: float) -> Observation:
    ranks = _ranks(seen, over=True)
    if _succeeded(seen, ranks, handle):
        return Observation(Phase.SUCCEEDED, False, ranks)
    if (cause := _by_slurm(mine)) and not _is_ours(seen, cause):
        return Observation(Phase.FAILED, False, ranks, cause)
    if cause := _own(seen, ranks):
        return Observation(Phase.FAILED, False, ranks, cause)
    if seen.stop is not None:
        return Observation(Phase.FAILED if seen.begun else Phase.ABSENT, False, ranks)
    if seen.end is None and now - max(job.end for job in mine) < SETTLE_SECONDS:
        return Observation(Phase.UNKNOWN, True, ranks)
    if seen.begun == mine[0].leader and all(job.state == "COMPLETED" for job in mine):
        return Observation(Phase.SUCCEEDED, False, ranks)
    return Observation(Phase.FAILED, False, ranks, _failed(seen, mine[0]))


def _forgotten(seen: Seen, handle: Handle, now: float) -> Observation:
    """Return the observation of a job that Slurm does not list: it forgets a job some minutes after its end, and a
    crashed controller those that started after its last save."""
    ranks = _ranks(seen, over=seen.end is not None)
    written = len(seen.statuses) == len(seen.order["names"] if seen.order else ()) - len(seen.inside)
    done = seen.end is not None or (written and all(s["state"] == "exited" for s in seen.statuses.values()))
    if done and _succeeded(seen, ranks, handle):
        return Observation(Phase.SUCCEEDED, False, ranks)
    if done and (cause := _own(seen, ranks)):
        return Observation(Phase.FAILED, False, ranks, cause)
    cause = Cause("JOB_LOST", {"job": seen.begun or seen.submitted})
    stopped = seen.stop is not None and (
        done
        or not any(status["state"] != "exited" for status in seen.statuses.values())
        or now > seen.stop["kill_at"] + LOST_SECONDS
    )
    left = False if done or stopped else None
    return Observation(Phase.FAILED, left, _ranks(seen, over=left is False), cause)


def is_over(job: Job) -> bool:
    """Return whether a job is over; unknown states are not: nothing may happen because of them."""
    return job.state in causes.OVER and "COMPLETING" not in job.flags


def _by_slurm(mine: Iterable[Job]) -> Cause | None:
    found = [cause for job in mine if (cause := causes.ended(job))]
    telling = [cause for cause in found if cause.code != "JOB_CANCELLED"]  # a component that fails ends the others
    return next(iter(telling or found), None)


def _is_ours(seen: Seen, cause: Cause) -> bool:
    """Return whether the platform cancelled the job."""
    return seen.stop is not None and cause.code == "JOB_CANCELLED"


def _asked(seen: Seen) -> set[str]:
    """Return the signals by which Slurm has asked for the end."""
    return {status["asked"] for status in seen.statuses.values() if status.get("asked")}


def _gave_up(seen: Seen) -> Cause | None:
    for rank, status in sorted(seen.statuses.items()):
        if why := status.get("cause"):
            job = seen.places[rank].job if rank in seen.places else seen.begun
            about = {"node": seen.node_name(rank), "nodeRank": rank, "job": job}
            code = why["code"] if why["code"] in _GAVE_UP else "JOB_FAILED"
            return by_runner(why, about) or Cause(code, {**why, **about, "why": why.get("evidence") or why["code"]})
    return None


def _own(seen: Seen, ranks: Sequence[RankSeen]) -> Cause | None:
    """Return why the ranks failed. What they did after Slurm had asked for the end is not their failure: it warns of
    the time limit, and otherwise its own state gives the reason, unless a user had it send a signal."""
    if cause := _gave_up(seen):
        return cause
    failure = cause_of_failure(ranks, seen.node_name, _lost(seen) if seen.end is not None else ())
    if (asked := _asked(seen)) and seen.stop is None and (failure or all(rank.state == "exited" for rank in ranks)):
        code = "TIME_LIMIT" if "SIGURG" in asked else "JOB_CANCELLED"
        return Cause(code, {"job": seen.begun, "nodes": "", "why": ", ".join(sorted(asked))})
    return failure


def _failed(seen: Seen, job: Job) -> Cause:
    """Return the cause of a script that came to its end while no rank failed: a runner was killed, or there never was
    one."""
    if lost := _lost(seen):
        return lost[0].cause
    return Cause("JOB_FAILED", {"job": job.leader, "why": seen.tail or f"exit code {job.exit_code}"})


def _lost(seen: Seen) -> list[Loss]:
    """Return the nodes whose runner did not live to write its end; only once all that was written has arrived."""
    return [
        Loss(Cause("RUNNER_LOST", {"nodeRank": rank, "node": seen.node_name(rank)}))
        for rank, status in sorted(seen.statuses.items())
        if status["state"] != "exited" and not status.get("asked")
    ]


def _succeeded(seen: Seen, ranks: Sequence[RankSeen], handle: Handle) -> bool:
    """Return whether all ranks ended with 0. One that ends because Slurm asks has not come to its end, whatever its
    exit code."""
    return (
        not _asked(seen)
        and len(ranks) == handle.world_size
        and all(rank.state == "exited" and rank.exit_code == 0 for rank in ranks)
    )


def _ranks(seen: Seen, *, over: bool) -> tuple[RankSeen, ...]:
    """Return the status of all ranks. `over`: nothing of the attempt lives, whatever was written last."""
    return tuple(
        _rank(entry, node_rank, over)
        for node_rank, status in sorted(seen.statuses.items())
        for entry in status["ranks"]
    )


def _rank(entry: dict[str, Any], node_rank: int, over: bool) -> RankSeen:
    seen = rank_seen(entry, node_rank)
    return replace(seen, state="exited") if over and seen.state == "running" else seen
