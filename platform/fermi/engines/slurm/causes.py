"""Slurm's states and reasons, and their meaning for an attempt. A state that is not in the tables has none: UNKNOWN.

PENDING                          waits; `find_waiting_cause` says for what
CONFIGURING RUNNING SUSPENDED    lives
COMPLETED FAILED                 the script came to its end; its result is in the folder
CANCELLED TIMEOUT PREEMPTED …    Slurm, or a user through it, ended it: the causes below
COMPLETING (beside a state)      something of it is still being ended
"""

import math
from collections.abc import Mapping
from typing import Any

from fermi.engines.slurm.driver import SlurmJob
from fermi.engines.slurm.pending_queue import PendingQueue
from fermi.jobs.causes import ALWAYS_FREE, declare_causes
from fermi.jobs.spec import Cause

CAUSES = declare_causes(
    # what a pending job waits for
    Cause("JOB_HELD", patient=True),
    Cause("NODE_UNAVAILABLE", retry=True),
    Cause("JOB_IMPOSSIBLE"),
    # ends
    Cause("JOB_CANCELLED", asked=True),
    Cause("JOB_FAILED", retry=True),
    Cause("JOB_LOST", retry=True),
    Cause("TIME_LIMIT", retry=True, asked=True),
    Cause("PREEMPTED", retry=True, asked=True, free=ALWAYS_FREE),
    # ends of what ran inside of an environment's allocation
    Cause("ALLOCATION_ENDED", retry=True, asked=True, lost=True),
    Cause("STEP_CANCELLED", asked=True),
    # refusals
    Cause("SLURM_PARTITION_INVALID"),
    Cause("SLURM_ACCOUNT_INVALID"),
    Cause("SLURM_QOS_INVALID"),
    Cause("SLURM_NODE_INVALID"),
    # stored by earlier releases for what is a general cause now
    Cause("SLURM_NODE_LOST", retry=True),
    Cause("SLURM_OUT_OF_MEMORY", retry=True),
    Cause("SLURM_HEAD_UNREACHABLE", retry=True),
    Cause("SLURM_NODES_MISSING", retry=True),
)

PENDING_STATES = frozenset({"PENDING"})
RUNNING_STATES = frozenset({"RUNNING", "SUSPENDED"})
SCRIPT_END_STATES = frozenset({"COMPLETED", "FAILED"})
SLURM_END_CODES = {
    "CANCELLED": "JOB_CANCELLED",
    "TIMEOUT": "TIME_LIMIT",
    "DEADLINE": "TIME_LIMIT",
    "PREEMPTED": "PREEMPTED",
    "NODE_FAIL": "NODE_LOST",
    "BOOT_FAIL": "NODE_LOST",
    "OUT_OF_MEMORY": "OUT_OF_MEMORY",
}
END_STATES = SCRIPT_END_STATES | SLURM_END_CODES.keys()

NODE_REASONS = ("ReqNodeNotAvail", "Nodes_required_for_job_are_DOWN", "NodeDown", "BadConstraints")
"""The machine of the environment cannot run it: another attempt may find it working."""
LIMIT_REASONS = ("PartitionConfig", "PartitionTimeLimit", "PartitionNodeLimit", "InvalidAccount", "InvalidQOS",
          "AccountNotAllowed", "QOSNotAllowed", "PartitionInactive", "PartitionDown")  # fmt: skip
"""It does not start before the cluster or the connection is changed."""
HELD_REASONS = ("JobHeldUser", "JobHeldAdmin", "JobHoldMaxRequeue", "launch_failed_requeued_held")


def find_waiting_cause(job: SlurmJob, queue: PendingQueue, now: float) -> Cause:
    """Return why a pending job waits: its turn in the queue, unless Slurm gives another reason; then with its position,
    and when Slurm's backfill expects it to start."""
    detail = job.detail or job.reason
    why = detail.replace("_", " ")
    params = {"job": job.leader, "why": why}
    told = f"{job.reason} {job.detail}"
    if any(reason in told for reason in HELD_REASONS):
        return Cause("JOB_HELD", params)
    if any(reason in told for reason in NODE_REASONS) and not _is_behind_others(job, now):
        return Cause("NODE_UNAVAILABLE", params)
    if any(reason in told for reason in LIMIT_REASONS):
        return Cause("JOB_IMPOSSIBLE", params)
    begins = {"begins": math.floor(job.start / 60) * 60} if job.start > now + 60 else {}
    place = queue.find_position(job)
    position = {} if place is None else {"position": place}
    return Cause("QUEUE_WAITING", {"job": job.leader, "evidence": why, **position, **begins})


def _is_behind_others(job: SlurmJob, now: float) -> bool:
    """Return whether a job waits for its turn although its reason names nodes. Going down the queue, Slurm takes the
    nodes of earlier jobs for unavailable: one that requires these very nodes then waits for `ReqNodeNotAvail`, and
    older versions name nodes that are up (SchedMD/slurm: src/slurmctld/node_scheduler.c, select_nodes). For a node that
    is down, the backfill expects no start."""
    return "May_be_reserved" in job.detail.replace(" ", "_") or ("ReqNodeNotAvail" in job.reason and job.start > now)


def explain_allocation_end(job: SlurmJob, environment: Mapping[str, Any]) -> Cause:
    """Return the cause of an environment's allocation that ended while ranks ran inside, or waits in the queue again.
    `environment`: parameters that name it."""
    cause = find_end_cause(job)
    if cause and cause.code in ("PREEMPTED", "NODE_LOST", "OUT_OF_MEMORY"):
        return Cause(cause.code, {**cause.params, **environment})
    return Cause("ALLOCATION_ENDED", {**environment, "why": "REQUEUED" if job.state in PENDING_STATES else job.state})


def find_end_cause(job: SlurmJob) -> Cause | None:
    """Return why Slurm ended a job; None where the script itself came to its end."""
    if (code := SLURM_END_CODES.get(job.state)) is None:
        return None
    why = job.detail or (job.reason if job.reason not in ("", "None") else job.state)
    why = why.replace("_", " ")
    if code in CAUSES:
        return Cause(code, {"job": job.leader, "nodes": job.nodes, "why": why})
    return Cause(code, {"job": job.leader, "node": job.nodes, "evidence": why})
