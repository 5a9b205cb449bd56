"""Slurm's states and reasons, and what they mean here. What is not in the tables means nothing: UNKNOWN.

PENDING                          waits; `waiting` says for what
CONFIGURING RUNNING SUSPENDED    lives
COMPLETED FAILED                 the script came to its end; how it went, the folder says
CANCELLED TIMEOUT PREEMPTED …    Slurm, or somebody through it, ended it: the causes below
COMPLETING (beside a state)      something of it is still being ended
"""

from fermi.launch.backends.slurm.driver import Job
from fermi.launch.spec import Cause

WAITS = frozenset({"PENDING"})
LIVES = frozenset({"RUNNING", "SUSPENDED"})
BY_ITSELF = frozenset({"COMPLETED", "FAILED"})
ENDED_BY_SLURM = {
    "CANCELLED": "JOB_CANCELLED",
    "TIMEOUT": "TIME_LIMIT",
    "DEADLINE": "TIME_LIMIT",
    "PREEMPTED": "PREEMPTED",
    "NODE_FAIL": "SLURM_NODE_LOST",
    "BOOT_FAIL": "SLURM_NODE_LOST",
    "OUT_OF_MEMORY": "SLURM_OUT_OF_MEMORY",
}
OVER = BY_ITSELF | ENDED_BY_SLURM.keys()

NODES = ("ReqNodeNotAvail", "Nodes_required_for_job_are_DOWN", "NodeDown", "BadConstraints")
"""The machine that the environment is cannot take it: another attempt may find it well."""
LIMITS = ("PartitionConfig", "PartitionTimeLimit", "PartitionNodeLimit", "InvalidAccount", "InvalidQOS",
          "AccountNotAllowed", "QOSNotAllowed", "PartitionInactive", "PartitionDown")  # fmt: skip
"""It does not begin before somebody changes the cluster or the connection."""
HELD = ("JobHeldUser", "JobHeldAdmin", "JobHoldMaxRequeue", "launch_failed_requeued_held")


def waiting(job: Job) -> Cause:
    """Why a pending job waits. Its turn in the queue, unless Slurm says something else."""
    detail = job.detail or job.reason
    params = {"job": job.leader, "why": detail.replace("_", " ")}
    told = f"{job.reason} {job.detail}"
    if any(reason in told for reason in HELD):
        return Cause("JOB_HELD", params)
    if any(reason in told for reason in NODES):
        return Cause("NODE_UNAVAILABLE", params)
    if any(reason in told for reason in LIMITS):
        return Cause("JOB_IMPOSSIBLE", params)
    return Cause("SLURM_QUEUE", params)


def ended(job: Job) -> Cause | None:
    """None where the script itself came to its end."""
    code = ENDED_BY_SLURM.get(job.state)
    why = job.detail or (job.reason if job.reason not in ("", "None") else job.state)
    return Cause(code, {"job": job.leader, "nodes": job.nodes, "why": why.replace("_", " ")}) if code else None
