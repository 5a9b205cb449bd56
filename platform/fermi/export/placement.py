"""`fermi launch`: decides which ranks run here, and where they meet, from the arguments and the environment. Pure.

--rank 3 --world-size 8 --master-addr A                  one rank; the others are started the same way
--nnodes 2 --node-rank 1 --nproc-per-node 4 --master-addr A    the ranks of one node (uneven: --nproc-per-node 1,2)
--nproc-per-node 4  or  --world-size 4                   all ranks, on this machine
in Slurm: srun fermi launch                              one rank per task
          srun --ntasks-per-node=1 fermi launch --nproc-per-node 4     the ranks of one node per task
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from fermi.export import hostlist
from fermi.jobs.errors import LaunchError
from fermi.jobs.rank_env import build_role_env
from fermi.runner.ports import DEFAULT_MASTER_PORT

Mode = Literal["auto", "manual", "slurm"]

SLURM_VARIABLES = ("SLURM_PROCID", "SLURM_NTASKS", "SLURM_NODEID", "SLURM_LOCALID", "SLURM_JOB_NODELIST")
LOOPBACK = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class LaunchArguments:
    """The arguments; None = not given. `nproc`: processes of each node, or of all alike."""

    mode: Mode = "auto"
    rank: int | None = None
    world_size: int | None = None
    local_rank: int | None = None
    nnodes: int | None = None
    node_rank: int | None = None
    nproc: tuple[int, ...] = ()
    master_addr: str | None = None
    master_port: int | None = None


@dataclass(frozen=True, slots=True)
class LaunchPlacement:
    """`ranks`: (rank, local rank) of those that run here. `members` start separately and meet first; this is `member`.
    `master_port` None: any free one, because no other process needs to know it."""

    ranks: tuple[tuple[int, int], ...]
    world_size: int
    local_world_size: int
    node_rank: int
    nodes: int = 1
    member: int = 0
    members: int = 1
    master_addr: str = LOOPBACK
    master_port: int | None = None

    def shared_env(self, port: int) -> dict[str, str]:
        """Return the variables of every rank, as `fermi.jobs.rank_env` has them."""
        return {
            "MASTER_ADDR": self.master_addr,
            "MASTER_PORT": str(port),
            "WORLD_SIZE": str(self.world_size),
            "LOCAL_WORLD_SIZE": str(self.local_world_size),
            "NODE_RANK": str(self.node_rank),
            "GROUP_RANK": str(self.node_rank),
            "GROUP_WORLD_SIZE": str(self.nodes),
            **build_role_env(self.world_size),
            "TORCHELASTIC_RUN_ID": "none",  # torchrun's default; see `fermi.jobs.network.build_torch_env`
            "TORCHELASTIC_RESTART_COUNT": "0",
            "TORCHELASTIC_MAX_RESTARTS": "0",
            "JAX_COORDINATOR_ADDRESS": f"{self.master_addr}:{port}",
        }


def find_placement(arguments: LaunchArguments, env: Mapping[str, str], gpus: int) -> LaunchPlacement:
    """Return the ranks that run here. `gpus`: how many this machine has, where no number of processes was given. Raises
    LaunchError."""
    _check_range("--master-port", arguments.master_port, 1, 65535)
    _check_range("--world-size", arguments.world_size, 1)
    _check_range("--nnodes", arguments.nnodes, 1)
    for count in arguments.nproc:
        _check_range("--nproc-per-node", count, 1)
    explicit = arguments.nnodes is not None or arguments.node_rank is not None
    in_slurm = all(name in env for name in SLURM_VARIABLES)
    if arguments.mode == "slurm" and not in_slurm:
        raise LaunchError("LAUNCH_NO_SLURM", names=", ".join(name for name in SLURM_VARIABLES if name not in env))
    if arguments.rank is not None:
        return _place_rank(arguments, env, arguments.rank)
    if arguments.mode == "slurm" or (
        arguments.mode == "auto" and in_slurm and not explicit and arguments.world_size is None
    ):
        return _place_in_slurm(arguments, env)
    if explicit and (arguments.nnodes or 1) > 1:
        return _place_node(arguments, env, gpus)
    return _place_machine(arguments, gpus)


def _place_rank(arguments: LaunchArguments, env: Mapping[str, str], rank: int) -> LaunchPlacement:
    size = arguments.world_size
    if size is None:
        raise LaunchError("LAUNCH_MISSING", name="--world-size", why="--rank")
    _check_range("--rank", rank, 0, size - 1)
    per_node = arguments.nproc[0] if arguments.nproc else None
    local = arguments.local_rank if arguments.local_rank is not None else rank % per_node if per_node else 0
    node = arguments.node_rank if arguments.node_rank is not None else rank // per_node if per_node else 0
    if size == 1:
        return LaunchPlacement(((0, local),), 1, 1, node, master_port=arguments.master_port)
    address, nodes = _find_master(arguments, env, f"--rank {rank} --world-size {size}"), -(-size // (per_node or 1))
    return LaunchPlacement(
        ((rank, local),), size, per_node or 1, node, nodes, rank, size, address, _find_port(arguments, env)
    )


def _place_node(arguments: LaunchArguments, env: Mapping[str, str], gpus: int) -> LaunchPlacement:
    nodes = arguments.nnodes or 1
    if arguments.node_rank is None:
        raise LaunchError("LAUNCH_MISSING", name="--node-rank", why=f"--nnodes {nodes}")
    _check_range("--node-rank", arguments.node_rank, 0, nodes - 1)
    counts = arguments.nproc or (max(gpus, 1),)
    if len(counts) not in (1, nodes):
        raise LaunchError("LAUNCH_COUNTS", found=",".join(map(str, counts)), nodes=nodes)
    counts = counts * nodes if len(counts) == 1 else counts
    _check_world_size(
        arguments.world_size, sum(counts), f"--nnodes {nodes} --nproc-per-node {','.join(map(str, arguments.nproc))}"
    )
    address = _find_master(arguments, env, f"--nnodes {nodes}")
    return _build_node_placement(counts, arguments.node_rank, address, _find_port(arguments, env))


def _place_machine(arguments: LaunchArguments, gpus: int) -> LaunchPlacement:
    _check_range("--node-rank", arguments.node_rank, 0, 0)
    count = arguments.nproc[0] if arguments.nproc else arguments.world_size or max(gpus, 1)
    _check_world_size(arguments.world_size, count, f"--nproc-per-node {count}")
    return _build_node_placement((count,), 0, arguments.master_addr or LOOPBACK, arguments.master_port)


def _place_in_slurm(arguments: LaunchArguments, env: Mapping[str, str]) -> LaunchPlacement:
    """Return the ranks of a Slurm task, with a port that all tasks of a step compute alike, and other steps on the same
    node do not."""
    number = {name: _read_number(name, env) for name in SLURM_VARIABLES[:4]}
    host = hostlist.expand_hosts(env["SLURM_JOB_NODELIST"])[0]
    address = arguments.master_addr or env.get("MASTER_ADDR") or host
    step = int(env.get("SLURM_STEP_ID") or 0) if (env.get("SLURM_STEP_ID") or "0").isdecimal() else 0
    job = int(env.get("SLURM_JOB_ID") or 0)
    given = arguments.master_port or int(env.get("MASTER_PORT") or 0)
    port = given or 20_000 + (job * 101 + step) % 10_000
    node, tasks, task = number["SLURM_NODEID"], number["SLURM_NTASKS"], number["SLURM_PROCID"]
    if arguments.nproc:
        nodes = int(env.get("SLURM_STEP_NUM_NODES") or env.get("SLURM_NNODES") or tasks)
        if tasks != nodes:
            raise LaunchError("LAUNCH_SLURM_TASKS", tasks=tasks, nodes=nodes)
        if len(arguments.nproc) not in (1, nodes):
            raise LaunchError("LAUNCH_COUNTS", found=",".join(map(str, arguments.nproc)), nodes=nodes)
        counts = arguments.nproc * nodes if len(arguments.nproc) == 1 else arguments.nproc
        return _build_node_placement(counts, node, address, port)
    _check_range("SLURM_PROCID", task, 0, tasks - 1)
    _check_world_size(arguments.world_size, tasks, "SLURM_NTASKS")
    here = _count_node_tasks(env, node)
    local = arguments.local_rank if arguments.local_rank is not None else number["SLURM_LOCALID"]
    nodes = int(env.get("SLURM_STEP_NUM_NODES") or env.get("SLURM_NNODES") or 1)
    return LaunchPlacement(((task, local),), tasks, here, node, nodes, task, tasks, address, port)


def _count_node_tasks(env: Mapping[str, str], node: int) -> int:
    counts = hostlist.expand_counts(env.get("SLURM_STEP_TASKS_PER_NODE") or env.get("SLURM_TASKS_PER_NODE") or "1")
    return counts[node] if node < len(counts) else 1


def _build_node_placement(counts: tuple[int, ...], node_rank: int, address: str, port: int | None) -> LaunchPlacement:
    first = sum(counts[:node_rank])
    ranks = tuple((first + local, local) for local in range(counts[node_rank]))
    return LaunchPlacement(
        ranks, sum(counts), len(ranks), node_rank, len(counts), node_rank, len(counts), address, port
    )


def _find_master(arguments: LaunchArguments, env: Mapping[str, str], why: str) -> str:
    if address := arguments.master_addr or env.get("MASTER_ADDR"):
        return address
    raise LaunchError("LAUNCH_MASTER_MISSING", why=why)


def _find_port(arguments: LaunchArguments, env: Mapping[str, str]) -> int:
    if arguments.master_port is not None:
        return arguments.master_port
    return _read_number("MASTER_PORT", env) if env.get("MASTER_PORT") else DEFAULT_MASTER_PORT


def _read_number(name: str, env: Mapping[str, str]) -> int:
    if not env[name].isdecimal():
        raise LaunchError("LAUNCH_NOT_A_NUMBER", name=name, found=env[name])
    return int(env[name])


def _check_range(name: str, found: int | None, low: int, high: int | None = None) -> None:
    if found is not None and not (low <= found and (high is None or found <= high)):
        allowed = f"{low} … {high}" if high is not None else f">= {low}"
        raise LaunchError("LAUNCH_OUT_OF_RANGE", name=name, found=found, allowed=allowed)


def _check_world_size(world_size: int | None, processes: int, source: str) -> None:
    if world_size not in (None, processes):
        raise LaunchError("LAUNCH_CONTRADICTION", found=world_size, processes=processes, whence=source)
