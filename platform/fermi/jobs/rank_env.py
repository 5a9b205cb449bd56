"""Builds the variables that every rank gets whatever its framework: those that torchrun sets (`_start_workers` of
torch's `elastic/agent/server/local_elastic_agent.py`), and the platform's own."""

import json
import math
from collections.abc import Collection, Mapping

from fermi.jobs import drill, network
from fermi.jobs.ranks import Placement
from fermi.jobs.spec import JobSpec, Late, NodePlan, Problem, Value
from fermi.runner.drill import DRILL_VARIABLE
from fermi.runner.placeholders import (
    AFTER_CHECKPOINT_VARIABLE,
    AFTER_OUTPUTS_VARIABLE,
    JOINED,
    PARTS,
    VARIABLES,
)
from fermi.runner.rank import PYTHON_VARIABLE

RANK_PLACEHOLDERS = frozenset({*VARIABLES, *JOINED, *PARTS})
"""Names in braces that are replaced by each rank's own values."""
COMPILE_VARIABLE, COMPILE_FOLDER = "TORCH_EXTENSIONS_DIR", "torch_extensions"
COMPILE_PATH: Value = (Late.FILES_DIR, f"/{COMPILE_FOLDER}")
"""Where an attempt compiles kernels, if its plan says so: the one folder among its files that ranks may write to."""

CPU_VARIABLE = "ACCELERATE_USE_CPU"
"""Without it, and without GPUs, each rank of Accelerate trains alone (`_prepare_backend` of accelerate 1.15
`state.py`)."""


def uses_compile_folder(node: NodePlan) -> bool:
    """Return whether the node's ranks compile kernels in the attempt's own folder; a task may name another one."""
    return node.env.get(COMPILE_VARIABLE) == COMPILE_PATH


def choose_backend(spec: JobSpec) -> str:
    """Return `nccl` or `gloo`. NCCL needs CUDA on every node; a mixture or emulated GPUs use gloo."""
    on_cuda = all(node.has_cuda for node in spec.nodes)
    if spec.backend == "auto" or not on_cuda:
        return "nccl" if on_cuda else "gloo"
    return spec.backend


def find_unrendered_strategy(spec: JobSpec, framework: str, own: Collection[str] = ("dataParallel",)) -> list[Problem]:
    """Return the warning of a framework (by its label) that renders only the degrees `own`, over all ranks: any other
    split will not run."""
    degrees = {k: v for k, v in spec.strategy.items() if isinstance(v, int) and v > 1}
    ranks, rest = math.prod(degrees.values()), {*own} - spec.strategy.keys()  # what is not given is what is left
    if degrees.keys() <= {*own} and (
        ranks == spec.world_size or (rest and spec.world_size % ranks == 0) or not degrees
    ):
        return []
    asked = " × ".join(f"{name}={value}" for name, value in degrees.items())
    params = {"asked": asked, "framework": framework, "worldSize": spec.world_size}
    return [Problem("distributedConfig.strategy", "STRATEGY_NOT_RENDERED", params)]


def build_job_env(spec: JobSpec) -> dict[str, Value]:
    """Return the variables that all ranks share. The user's variables win over those of the network, and lose to those
    that identify a rank."""
    backend = choose_backend(spec)
    return {
        **network.build_job_env(spec.nodes, backend),
        **spec.env,
        **(spec.resume_rule.filled_env if spec.resume_rule else {}),
        "MASTER_ADDR": Late.HEAD_HOST,
        "MASTER_PORT": str(spec.master_port),
        "WORLD_SIZE": str(spec.world_size),
        "GROUP_WORLD_SIZE": str(len(spec.nodes)),
        **build_role_env(spec.world_size),
        **({PYTHON_VARIABLE: Late.PYTHON} if spec.entrypoint and spec.entrypoint.command else {}),
        "FERMI_TASK_ID": spec.task_id,
        "FERMI_ATTEMPT": str(spec.attempt),
        "FERMI_BACKEND": backend,
        "FERMI_TRAIN_DATA": spec.train_data,
        "FERMI_VALID_DATA": spec.valid_data,
        "FERMI_CHECKPOINT_DIR": spec.checkpoint_dir,
        "FERMI_RESUME_FROM": spec.resume_from,
        **({"FERMI_RESUME_STEP": str(spec.resume_step)} if spec.resume_step is not None else {}),
        **_build_after_env(spec),
        **_build_folder_env(spec),
        "FERMI_HYPERPARAMETERS": json.dumps(dict(spec.hyperparameters), sort_keys=True),
        **({DRILL_VARIABLE: json.dumps({"rank": drill.choose_victim(spec)})} if spec.rehearses else {}),
    }


def build_role_env(world_size: int) -> dict[str, str]:
    """Return torchrun's variables of roles, where all ranks have the default one."""
    return {"ROLE_NAME": "default", "ROLE_WORLD_SIZE": str(world_size)}


def _build_folder_env(spec: JobSpec) -> dict[str, Value]:
    """Return the variables of folders that the platform gives a task; an exported job has none."""
    places = {
        "FERMI_OUTPUT_DIR": spec.output_dir,
        "FERMI_FILES_DIR": spec.files_dir,
        "FERMI_FILES_URL": spec.files_url,
    }
    return {name: place for name, place in places.items() if place}


def _build_after_env(spec: JobSpec) -> dict[str, Value]:
    """Return the variables of a task that came after another one; empty values where that one has none."""
    if not spec.after:
        return {}
    return {AFTER_CHECKPOINT_VARIABLE: spec.after_checkpoint, AFTER_OUTPUTS_VARIABLE: spec.after_outputs}


def build_node_env(shared: Mapping[str, Value], placement: Placement) -> dict[str, Value]:
    """Return the variables of a node's ranks. `shared`: the result of `build_job_env`, built once for all nodes."""
    node = placement.node
    threads = max(1, node.cpu_cores // node.processes) if node.has_cuda else 1
    on_cpus = not node.has_cuda and shared["WORLD_SIZE"] != "1"
    env: dict[str, Value] = {
        "OMP_NUM_THREADS": str(threads),
        **({CPU_VARIABLE: "true"} if on_cpus else {}),
        **network.build_node_env(node, str(shared["FERMI_BACKEND"]), infiniband=shared.get("NCCL_IB_DISABLE") == "0"),
        **shared,
        "LOCAL_WORLD_SIZE": str(node.processes),
        "NODE_RANK": str(placement.node_rank),
        "GROUP_RANK": str(placement.node_rank),
        "FERMI_NODE": node.name,
    }
    if node.emulated:
        env["CUDA_VISIBLE_DEVICES"] = ""
    return env


def build_rank_env(rank: int, local_rank: int) -> dict[str, str]:
    """Return the variables that only this rank gets."""
    return {"RANK": str(rank), "LOCAL_RANK": str(local_rank), "ROLE_RANK": str(rank)}
