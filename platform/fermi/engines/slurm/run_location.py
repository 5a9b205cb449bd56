"""Decide whether a node's ranks can run inside of its environment's allocation, and in a job beside it."""

import getpass
import re
from collections.abc import Callable, Mapping
from typing import Any

from fermi.engines.slurm import allocations
from fermi.engines.slurm.driver import SlurmMachine
from fermi.jobs.run_location import RunLocations
from fermi.jobs.spec import JobSpec, Node, RunLocation

_GRES = re.compile(r"([a-z_]+):(?:[\w.-]+:)?(\d+)", re.IGNORECASE)


def find_run_locations(
    job: JobSpec,
    connection: Mapping[str, Any],
    can_enter: Callable[[], bool],
    machines: Callable[[], Mapping[str, SlurmMachine]],
) -> dict[str, RunLocations]:
    """Return the possibilities by node id; a node that Slurm chooses has one possibility alone. `can_enter`: whether
    steps can be started from here; `machines`: the nodes of the cluster, by name."""
    return {
        node.id: RunLocations(
            _choose_default(node), _check_inside(node, connection, can_enter), _check_beside(node, connection, machines)
        )
        for node in job.nodes
        if allocations.is_environment(node)
    }


def _choose_default(node: Node) -> RunLocation:
    return (
        RunLocation(True, "WAY_INSIDE_GPUS", {"gpus": node.gpu_count})
        if node.has_cuda
        else RunLocation(True, "WAY_INSIDE_RUNS")
    )


def _check_inside(node: Node, connection: Mapping[str, Any], enters: Callable[[], bool]) -> RunLocation | None:
    """Return why ranks cannot run inside; None: they can. Slurm starts steps of a job for its own user alone, also when
    root asks (SchedMD/slurm: src/stepmgr/stepmgr.c, step_create: `step_specs->user_id != job_ptr->user_id`)."""
    own, user = getpass.getuser(), str(connection.get("user") or "")
    user = str(node.engine.get(allocations.USER_KEY) or user or own)
    if user != own:
        return RunLocation(False, "SLURM_ALLOCATION_USER", {"user": user, "expected": own})
    if not enters():
        return RunLocation(False, "SLURM_COMMAND_MISSING", {"command": "srun"})
    return None


def _check_beside(
    node: Node, connection: Mapping[str, Any], machines: Callable[[], Mapping[str, SlurmMachine]]
) -> RunLocation | None:
    """Return a warning where the environment's own allocation holds the GPUs that a job beside it needs: it would wait
    for as long as that lasts. GPUs of other jobs become free some day."""
    gpus = node.gpu_count if node.has_cuda or connection.get("gres") or node.engine.get("gres") else 0
    if not gpus or not node.host or (machine := machines().get(node.host)) is None:
        return None
    name = str(node.engine.get("gres") or connection.get("gres") or "gpu").partition(":")[0]
    there = sum(int(count) for kind, count in _GRES.findall(machine.gres) if kind == name)
    if there - gpus >= gpus:
        return None
    params = {"gpus": gpus, "there": there, "free": max(there - gpus, 0), "host": node.host}
    return RunLocation(True, "BESIDE_GPUS_HELD", params)
