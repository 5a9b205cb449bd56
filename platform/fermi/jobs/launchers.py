"""Builds the variables and files for a command that starts the ranks of its node itself, as launchers document them.

torchrun        takes PET_<OPTION> as the default of each option (torch 2.13, `distributed/argparse_util.py`), and the
                variable TORCH_ELASTIC_SHUTDOWN_TIMEOUT as the grace of its ranks (`distributed/launcher/api.py`)
Lightning       MASTER_ADDR, MASTER_PORT and NODE_RANK (lightning 2.6, `fabric/plugins/environments/lightning.py`);
                with TORCHELASTIC_RUN_ID it would take the process for a rank of torchrun (`…/torchelastic.py`)
Accelerate      a configuration file, which `accelerate launch` reads from its `--config_file` (accelerate 1.15 has no
                variable for it, `commands/config/config_args.py`), and torchrun's variables, whose parser it uses
DeepSpeed, MPI  a hostfile, one line `HOST slots=N` for each node (deepspeed 0.19, `launcher/runner.py`, which refuses
                two lines of one host, and with `--no_ssh` connects to none)
shell scripts   NNODES, NODE_RANK, NPROC_PER_NODE, MASTER_ADDR and MASTER_PORT, by custom

A launcher gives its processes RANK, LOCAL_RANK and WORLD_SIZE; the launcher itself has none of them, because scripts
take them as the sign that they are a rank.
"""

import math
from collections.abc import Mapping

from fermi.jobs.ranks import Placement, place_nodes
from fermi.jobs.spec import JobSpec, Late, Value
from fermi.runner.placeholders import WORLD_SIZE_VARIABLE
from fermi.runner.rank import PYTHON_VARIABLE

HOSTFILE_NAME, ACCELERATE_NAME = "hostfile", "accelerate-{node_rank}.yaml"
RANK_ONLY = (
    "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE", "ROLE_NAME", "ROLE_WORLD_SIZE",
    "TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT", "TORCHELASTIC_MAX_RESTARTS",
    "HOROVOD_HOSTNAME", "HOROVOD_SIZE", "HOROVOD_LOCAL_SIZE", "HOROVOD_CONTROLLER", "HOROVOD_GLOO_RENDEZVOUS_ADDR",
    "HOROVOD_GLOO_RENDEZVOUS_PORT",
)  # fmt: skip
"""Variables that all ranks share and that only a rank may have."""


def build_launcher_env(spec: JobSpec, at: Placement, shared: Mapping[str, Value]) -> dict[str, Value]:
    """Return the variables of the process that starts the ranks of a node. `shared`: those that its ranks would have
    in common."""
    kept = {name: value for name, value in shared.items() if name not in RANK_ONLY}
    grace = str(math.ceil(spec.grace_seconds))
    place: dict[str, Value] = {
        "NNODES": str(len(spec.nodes)),
        "NPROC_PER_NODE": str(at.node.processes),
        "NODE_RANK": str(at.node_rank),
        "MASTER_ADDR": Late.HEAD_HOST,
        "MASTER_PORT": str(spec.master_port),
    }
    return {
        "PYTHONUNBUFFERED": "1",  # as for ranks, which run `python -u`
        "PET_SHUTDOWN_TIMEOUT": grace,
        "TORCH_ELASTIC_SHUTDOWN_TIMEOUT": grace,
        **kept,
        **place,
        **{f"PET_{name}": value for name, value in place.items()},
        WORLD_SIZE_VARIABLE: str(spec.world_size),
        PYTHON_VARIABLE: Late.PYTHON,
        "FERMI_HOSTFILE": (Late.FILES_DIR, f"/{HOSTFILE_NAME}"),
        "FERMI_ACCELERATE_CONFIG": (Late.FILES_DIR, "/" + ACCELERATE_NAME.format(node_rank=at.node_rank)),
    }


def build_launcher_files(spec: JobSpec) -> dict[str, Value]:
    """Return the plan's files for launchers."""
    pieces: list[str | Late] = []
    files: dict[str, Value] = {}
    addresses: set[str] = set()
    for at in place_nodes(spec.nodes, spec.master):
        address = at.node.name if at.node.address in addresses else at.node.address  # two nodes on one host
        addresses.add(address)
        pieces += [Late.HEAD_HOST if at.node_rank == 0 else address, f" slots={at.node.processes}\n"]
        files[ACCELERATE_NAME.format(node_rank=at.node_rank)] = _render_accelerate_config(spec, at)
    return {HOSTFILE_NAME: tuple(pieces), **files}


def _render_accelerate_config(spec: JobSpec, at: Placement) -> Value:
    """Return Accelerate's configuration for a node. It starts several processes by torchrun's means for MULTI_GPU
    alone, where each finds out by itself whether it has a GPU; for MULTI_CPU it would call `mpirun` (accelerate 1.15,
    `commands/launch.py`)."""
    before = (
        f"compute_environment: LOCAL_MACHINE\ndistributed_type: {'MULTI_GPU' if spec.world_size > 1 else 'NO'}\n"
        f"num_machines: {len(spec.nodes)}\nmachine_rank: {at.node_rank}\nnum_processes: {spec.world_size}\n"
        "gpu_ids: all\nuse_cpu: false\nmixed_precision: 'no'\nmain_process_ip: "
    )
    return before, Late.HEAD_HOST, f"\nmain_process_port: {spec.master_port}\nsame_network: true\n"
