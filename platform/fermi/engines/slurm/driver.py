"""Interface of Slurm, by commands or slurmrestd; and a job as both report it."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol


@dataclass(frozen=True, slots=True)
class SlurmJob:
    """One component of a job (most have one). `state` without flags; empty = not reported. `leader`: the id under which
    all components were submitted. `flags`: COMPLETING, … `start`: of a pending one, when Slurm expects it to start,
    unix seconds; 0 = not reported; of others, when it started. It and `priority` change all the time, and are not
    compared. `gres`: what it has on each of its nodes, as `gpu:a100:2(IDX:0-1)`. `cpus`, `memory_mb`: on all of them
    together."""

    id: int
    leader: int
    comment: str
    state: str
    flags: frozenset[str] = frozenset()
    reason: str = ""
    detail: str = ""
    nodes: str = ""
    exit_code: int = 0
    end: float = 0.0
    partition: str = ""
    priority: int = field(default=0, compare=False)
    start: float = field(default=0.0, compare=False)
    name: str = ""
    user: str = ""
    gres: tuple[str, ...] = ()
    cpus: int = 0
    memory_mb: int = 0


@dataclass(frozen=True, slots=True)
class SlurmMachine:
    """Node of the cluster."""

    name: str
    states: frozenset[str]
    partitions: tuple[str, ...] = ()
    gres: str = ""
    cpus: int = 1
    memory_mb: int = 0
    address: str = ""
    reason: str = ""


@dataclass(frozen=True, slots=True)
class SlurmSubmission:
    """Job to submit: its script, the folder that it runs in, and per component the options of sbatch."""

    script: str
    folder: str
    components: Sequence[Mapping[str, str | int | bool]]
    environment: Mapping[str, str] = field(default_factory=dict)


class SlurmDriver(Protocol):
    """Access to Slurm. All methods raise `fermi.jobs.errors.BackendError` when Slurm cannot be asked or refuses."""

    max_single_queries: int
    """Up to so many jobs are queried by their numbers instead of listing those of all users."""

    def version(self) -> str:
        """Return Slurm's version."""

    def jobs(self) -> list[SlurmJob]:
        """Return all jobs that Slurm remembers and we may see, with one listing."""

    def job(self, job_id: int) -> list[SlurmJob]:
        """Return the components of one job; empty when Slurm does not know it."""

    def submit(self, submission: SlurmSubmission) -> int:
        """Submit a job; return its id."""

    def cancel(self, job_id: int) -> None:
        """Cancel a job; one that is over or unknown is left alone."""

    def partitions(self) -> dict[str, bool]:
        """Return by name whether each partition is up."""

    def machines(self) -> list[SlurmMachine]:
        """Return all nodes of the cluster."""


_MEMORY = re.compile(r"(?:^|,)mem=([\d.]+)([KMGT]?)")
STATE_FLAGS = frozenset(
    {"COMPLETING", "CONFIGURING", "RESIZING", "POWER_UP_NODE", "STAGE_OUT", "SIGNALING", "STOPPED", "SPECIAL_EXIT",
     "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "RESV_DEL_HOLD", "REVOKED", "UPDATE_DB", "LAUNCH_FAILED",
     "RECONFIG_FAIL", "EXPEDITING"}
)  # fmt: skip
"""Flags that stand beside, or in older versions instead of, a state."""


def split_state(states: str | Iterable[str]) -> tuple[str, frozenset[str]]:
    """Return state and flags of `RUNNING`, `COMPLETING`, `CANCELLED by 0` or `["CANCELLED", "COMPLETING"]`."""
    words = [states] if isinstance(states, str) else list(states)
    names = [word.split()[0].upper().rstrip("+") for word in words if word]
    return next((name for name in names if name not in STATE_FLAGS), ""), frozenset(names) & STATE_FLAGS


def parse_job(row: Mapping[str, Any]) -> SlurmJob:
    """Return a job from the JSON of slurmrestd and `squeue --json`, in any of its versions."""
    state, flags = split_state(row.get("job_state") or "")
    leader = parse_number(row.get("het_job_id")) or int(row["job_id"])
    return SlurmJob(
        int(row["job_id"]), leader, str(row.get("comment") or ""), state, flags, str(row.get("state_reason") or ""),
        str(row.get("state_description") or ""), str(row.get("nodes") or ""), parse_exit_code(row.get("exit_code")),
        float(parse_number(row.get("end_time"))), str(row.get("partition") or ""), parse_number(row.get("priority")),
        float(parse_number(row.get("start_time"))), str(row.get("name") or ""), str(row.get("user_name") or ""),
        tuple(map(str, row.get("gres_detail") or ())), parse_number(row.get("cpus")),
        _parse_memory(str(row.get("tres_alloc_str") or "")),
    )  # fmt: skip


def parse_machine(row: Mapping[str, Any]) -> SlurmMachine:
    """Return a node from the JSON of slurmrestd and `sinfo --json`."""
    states = row.get("state") or ()
    if isinstance(states, str):
        states = [states, *(row.get("state_flags") or ())]
    return SlurmMachine(
        str(row["name"]), frozenset(str(one).upper() for one in states if one), tuple(row.get("partitions") or ()),
        str(row.get("gres") or ""), int(row.get("cpus") or 1), int(row.get("real_memory") or 0),
        str(row.get("address") or ""), str(row.get("reason") or ""),
    )  # fmt: skip


def _parse_memory(tres: str) -> int:
    """Return the megabytes of `cpu=4,mem=62.50G,node=1`."""
    found = _MEMORY.search(tres)
    return int(float(found[1]) * {"K": 1 / 1024, "": 1, "M": 1, "G": 1024, "T": 1024**2}[found[2]]) if found else 0


def parse_number(value: Any) -> int:
    """Return a number; 0 for what is not set; newer versions write `{"set": true, "infinite": false, "number": 5}`."""
    if isinstance(value, Mapping):
        return int(value.get("number") or 0) if value.get("set") else 0
    return int(value or 0)


def parse_exit_code(value: Any) -> int:
    """Return an exit code. Old versions give wait()'s status; newer ones an object."""
    if isinstance(value, Mapping):
        return parse_number(value.get("return_code")) or 128 * bool((value.get("signal") or {}).get("id"))
    status = parse_number(value)
    return status >> 8 or (128 + (status & 127) if status & 127 else 0)
