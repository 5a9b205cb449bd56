"""`fermi launch`: decides which ranks run here, and where they meet, from the arguments and the environment. Pure.

--rank 3 --world-size 8 --master-addr A                  one rank; the others are started the same way
--nnodes 2 --node-rank 1 --nproc-per-node 4 --master-addr A    the ranks of one node (uneven: --nproc-per-node 1,2)
--nproc-per-node 4  or  --world-size 4                   all ranks, on this machine
in Slurm: srun fermi launch                              one rank per task
          srun --ntasks-per-node=1 fermi launch --nproc-per-node 4     the ranks of one node per task
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from fermi.export import hostlist
from fermi.jobs.errors import LaunchError
from fermi.jobs.rank_env import rank_env, roles
from fermi.runner.ports import MASTER_PORT

Mode = Literal["auto", "manual", "slurm"]

SLURM = ("SLURM_PROCID", "SLURM_NTASKS", "SLURM_NODEID", "SLURM_LOCALID", "SLURM_JOB_NODELIST")
LOOPBACK = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class Asked:
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
class Place:
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
            **roles(self.world_size),
            "TORCHELASTIC_RUN_ID": "none",  # torchrun's default; see `fermi.jobs.network.torch_env`
            "TORCHELASTIC_RESTART_COUNT": "0",
            "TORCHELASTIC_MAX_RESTARTS": "0",
            "JAX_COORDINATOR_ADDRESS": f"{self.master_addr}:{port}",
        }


def find(asked: Asked, env: Mapping[str, str], gpus: int) -> Place:
    """Return the ranks that run here. `gpus`: how many this machine has, where no number of processes was given. Raises
    LaunchError."""
    _in_range("--master-port", asked.master_port, 1, 65535)
    _in_range("--world-size", asked.world_size, 1)
    _in_range("--nnodes", asked.nnodes, 1)
    for count in asked.nproc:
        _in_range("--nproc-per-node", count, 1)
    explicit = asked.nnodes is not None or asked.node_rank is not None
    in_slurm = all(name in env for name in SLURM)
    if asked.mode == "slurm" and not in_slurm:
        raise LaunchError("LAUNCH_NO_SLURM", names=", ".join(name for name in SLURM if name not in env))
    if asked.rank is not None:
        return _one_rank(asked, env, asked.rank)
    if asked.mode == "slurm" or (asked.mode == "auto" and in_slurm and not explicit and asked.world_size is None):
        return _slurm(asked, env)
    if explicit and (asked.nnodes or 1) > 1:
        return _one_node(asked, env, gpus)
    return _one_machine(asked, gpus)


def _one_rank(asked: Asked, env: Mapping[str, str], rank: int) -> Place:
    size = asked.world_size
    if size is None:
        raise LaunchError("LAUNCH_MISSING", name="--world-size", why="--rank")
    _in_range("--rank", rank, 0, size - 1)
    per_node = asked.nproc[0] if asked.nproc else None
    local = asked.local_rank if asked.local_rank is not None else rank % per_node if per_node else 0
    node = asked.node_rank if asked.node_rank is not None else rank // per_node if per_node else 0
    if size == 1:
        return Place(((0, local),), 1, 1, node, master_port=asked.master_port)
    address, nodes = _master(asked, env, f"--rank {rank} --world-size {size}"), -(-size // (per_node or 1))
    return Place(((rank, local),), size, per_node or 1, node, nodes, rank, size, address, _port(asked, env))


def _one_node(asked: Asked, env: Mapping[str, str], gpus: int) -> Place:
    nodes = asked.nnodes or 1
    if asked.node_rank is None:
        raise LaunchError("LAUNCH_MISSING", name="--node-rank", why=f"--nnodes {nodes}")
    _in_range("--node-rank", asked.node_rank, 0, nodes - 1)
    counts = asked.nproc or (max(gpus, 1),)
    if len(counts) not in (1, nodes):
        raise LaunchError("LAUNCH_COUNTS", found=",".join(map(str, counts)), nodes=nodes)
    counts = counts * nodes if len(counts) == 1 else counts
    _agrees(asked.world_size, sum(counts), f"--nnodes {nodes} --nproc-per-node {','.join(map(str, asked.nproc))}")
    address = _master(asked, env, f"--nnodes {nodes}")
    return _node(counts, asked.node_rank, address, _port(asked, env))


def _one_machine(asked: Asked, gpus: int) -> Place:
    _in_range("--node-rank", asked.node_rank, 0, 0)
    count = asked.nproc[0] if asked.nproc else asked.world_size or max(gpus, 1)
    _agrees(asked.world_size, count, f"--nproc-per-node {count}")
    return _node((count,), 0, asked.master_addr or LOOPBACK, asked.master_port)


def _slurm(asked: Asked, env: Mapping[str, str]) -> Place:
    """Return the ranks of a Slurm task, with a port that all tasks of a step compute alike, and other steps on the same
    node do not."""
    number = {name: _number(name, env) for name in SLURM[:4]}
    host = hostlist.expand(env["SLURM_JOB_NODELIST"])[0]
    address = asked.master_addr or env.get("MASTER_ADDR") or host
    step = int(env.get("SLURM_STEP_ID") or 0) if (env.get("SLURM_STEP_ID") or "0").isdecimal() else 0
    job = int(env.get("SLURM_JOB_ID") or 0)
    given = asked.master_port or int(env.get("MASTER_PORT") or 0)
    port = given or 20_000 + (job * 101 + step) % 10_000
    node, tasks, task = number["SLURM_NODEID"], number["SLURM_NTASKS"], number["SLURM_PROCID"]
    if asked.nproc:
        nodes = int(env.get("SLURM_STEP_NUM_NODES") or env.get("SLURM_NNODES") or tasks)
        if tasks != nodes:
            raise LaunchError("LAUNCH_SLURM_TASKS", tasks=tasks, nodes=nodes)
        if len(asked.nproc) not in (1, nodes):
            raise LaunchError("LAUNCH_COUNTS", found=",".join(map(str, asked.nproc)), nodes=nodes)
        counts = asked.nproc * nodes if len(asked.nproc) == 1 else asked.nproc
        return _node(counts, node, address, port)
    _in_range("SLURM_PROCID", task, 0, tasks - 1)
    _agrees(asked.world_size, tasks, "SLURM_NTASKS")
    here = _tasks_here(env, node)
    local = asked.local_rank if asked.local_rank is not None else number["SLURM_LOCALID"]
    nodes = int(env.get("SLURM_STEP_NUM_NODES") or env.get("SLURM_NNODES") or 1)
    return Place(((task, local),), tasks, here, node, nodes, task, tasks, address, port)


def _tasks_here(env: Mapping[str, str], node: int) -> int:
    counts = hostlist.counts(env.get("SLURM_STEP_TASKS_PER_NODE") or env.get("SLURM_TASKS_PER_NODE") or "1")
    return counts[node] if node < len(counts) else 1


def _node(counts: tuple[int, ...], node_rank: int, address: str, port: int | None) -> Place:
    first = sum(counts[:node_rank])
    ranks = tuple((first + local, local) for local in range(counts[node_rank]))
    return Place(ranks, sum(counts), len(ranks), node_rank, len(counts), node_rank, len(counts), address, port)


def _master(asked: Asked, env: Mapping[str, str], why: str) -> str:
    if address := asked.master_addr or env.get("MASTER_ADDR"):
        return address
    raise LaunchError("LAUNCH_MASTER_MISSING", why=why)


def _port(asked: Asked, env: Mapping[str, str]) -> int:
    if asked.master_port is not None:
        return asked.master_port
    return _number("MASTER_PORT", env) if env.get("MASTER_PORT") else MASTER_PORT


def _number(name: str, env: Mapping[str, str]) -> int:
    if not env[name].isdecimal():
        raise LaunchError("LAUNCH_NOT_A_NUMBER", name=name, found=env[name])
    return int(env[name])


def _in_range(name: str, found: int | None, low: int, high: int | None = None) -> None:
    if found is not None and not (low <= found and (high is None or found <= high)):
        allowed = f"{low} … {high}" if high is not None else f">= {low}"
        raise LaunchError("LAUNCH_OUT_OF_RANGE", name=name, found=found, allowed=allowed)


def _agrees(world_size: int | None, processes: int, whence: str) -> None:
    if world_size not in (None, processes):
        raise LaunchError("LAUNCH_CONTRADICTION", found=world_size, processes=processes, whence=whence)


def exports(place: Place, port: int) -> dict[str, Any]:
    """Return the variables by rank that --dry-run shows."""
    return {str(rank): {**place.shared_env(port), **rank_env(rank, local)} for rank, local in place.ranks}
