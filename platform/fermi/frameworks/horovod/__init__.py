"""Horovod: every rank holds the whole model; gradients are all-reduced as soon as they are there, small ones together.

Ranks meet at a rendezvous server of Horovod's own, which rank 0 runs (start.py). Then each of them talks to all others,
to those of its node ("local"), and to those with its local rank on other nodes ("cross"):

    node     n1            n3                    n5
    rank     0   1         2   3   4   5         6   7   8   9   10  11  12  13
    cross    0/3 0/3       1/3 1/3 0/2 0/2       2/3 2/3 1/2 1/2 0/1 0/1 0/1 0/1      CROSS_RANK/CROSS_SIZE

start.py   what each rank runs before its script; a file of the plan
hosts.py   `host:slots`, for people who start by hand
"""

from collections import Counter
from pathlib import Path

from fermi.frameworks._planning import build_plan
from fermi.frameworks.base import Info
from fermi.frameworks.horovod import hosts
from fermi.jobs import options, recipes
from fermi.jobs.ranks import Placement, place_nodes
from fermi.jobs.spec import JobSpec, Late, Plan, Problem, Value

INFO = Info(
    elastic="even",
    label="Horovod",
    model_size=(1_000_000_000, 10_000_000_000),
    launcher="horovodrun",
    packages=("horovod",),
    install="make test-frameworks ONLY=horovod && "
    "pip install cloudpickle cffi psutil build/frameworks/wheels/horovod-*/*.whl",
    reserved=(
        "HOROVOD_(RANK|SIZE|LOCAL_RANK|LOCAL_SIZE|CROSS_RANK|CROSS_SIZE|HOSTNAME|CONTROLLER|CPU_OPERATIONS)",
        "HOROVOD_GLOO_RENDEZVOUS_.*",
    ),
)

OPTIONS = options.build_schema(
    compression={"enum": ["none", "fp16"], "default": "none"},
    fusionThresholdMb={"type": "integer", "minimum": 0, "maximum": 4096, "default": 128},
    cycleTimeMs={"type": "number", "exclusiveMinimum": 0, "maximum": 1000, "default": 1},
    autotune={"type": "boolean", "default": False},
    timeline={"type": "boolean", "default": False},
    timeoutSeconds={"type": "integer", "minimum": 1, "maximum": 86_400, "default": 300},
    hosts={"type": "string"},
)

_IMPORTS = ("torch", "numpy", "torch.distributed", "torch._dynamo")
PRELOAD = (*_IMPORTS, "horovod.torch", "horovod.runner.http.http_server")
"""For ranks on CPUs. Horovod built for CUDA is not loaded into a process that is to be forked."""

_START_SCRIPT = (Path(__file__).parent / "start.py").read_text(encoding="utf-8")


def problems(spec: JobSpec) -> list[Problem]:
    found = options.find_problems(spec, OPTIONS) + hosts.find_problems(spec)
    if spec.entrypoint and spec.entrypoint.command and not spec.starts_ranks:
        found.append(Problem("entrypoint.command", "HOROVOD_NEEDS_PYTHON"))
    return found


def warnings(spec: JobSpec) -> list[Problem]:
    found = hosts.find_warnings(spec)
    if spec.backend == "auto":
        return found
    return [Problem("distributedConfig.backend", "HOROVOD_BACKEND_BUILT_IN", {"asked": spec.backend}), *found]


def plan(spec: JobSpec) -> Plan:
    """Return the plan. `hostfile` and `horovodrun.sh` are for starting it without the platform."""
    placements, env = place_nodes(spec.nodes, spec.master), _build_env(spec)
    slots = ",".join(f"{_get_node_name(at)}:{at.node.processes}" for at in placements)
    cross_rank, cross_size = _count_cross_ranks(placements)

    def node_env(at: Placement) -> dict[str, Value]:
        return {**env, "HOROVOD_HOSTNAME": _get_node_name(at), "HOROVOD_LOCAL_SIZE": str(at.node.processes)}

    def rank_env(at: Placement, local_rank: int) -> dict[str, Value]:
        rank = at.first_rank + local_rank
        return {
            "HOROVOD_RANK": str(rank),
            "HOROVOD_LOCAL_RANK": str(local_rank),
            "HOROVOD_CROSS_RANK": str(cross_rank[rank]),
            "HOROVOD_CROSS_SIZE": str(cross_size[local_rank]),
            **({} if rank else {"FERMI_HOROVOD_HOSTS": slots}),
        }

    extra = {"compression": options.read_option(spec, OPTIONS, "compression")}
    command = python, unbuffered, *script = recipes.build_command(spec, "fermi.train.train_horovod", extra)
    by_hand, timeline = hosts.list_hosts(spec), env.get("HOROVOD_TIMELINE")
    return build_plan(
        spec,
        command if spec.starts_ranks else (python, unbuffered, (Late.FILES_DIR, "/horovod_start.py"), *script),
        files={
            "horovod_start.py": _START_SCRIPT,
            "hostfile": hosts.render_hostfile(by_hand),
            "horovodrun.sh": hosts.render_horovodrun(spec, by_hand, timeline, (python, unbuffered, *script)),
        },
        preload=PRELOAD if not any(node.has_cuda for node in spec.nodes) else _IMPORTS,
        node_env=node_env,
        rank_env=rank_env,
    )


def _get_node_name(at: Placement) -> str:
    """Return the name by which Horovod distinguishes nodes: a part of the rendezvous server's addresses, never
    resolved."""
    return f"node-{at.node_rank}"


def _count_cross_ranks(placements: list[Placement]) -> tuple[dict[int, int], Counter[int]]:
    """Return by rank how many nodes before its own have a rank with its local rank; and by local rank how many nodes
    have it."""
    before: dict[int, int] = {}
    seen: Counter[int] = Counter()
    for at in placements:
        for local_rank, rank in enumerate(at.ranks):
            before[rank] = seen[local_rank]
            seen[local_rank] += 1
    return before, seen


def _build_env(spec: JobSpec) -> dict[str, Value]:
    """What all ranks share."""
    chosen = spec.options
    env: dict[str, Value] = {
        "HOROVOD_SIZE": str(spec.world_size),
        "HOROVOD_CONTROLLER": "gloo",
        "HOROVOD_CPU_OPERATIONS": "gloo",
        "HOROVOD_GLOO_RENDEZVOUS_ADDR": Late.HEAD_HOST,
        "HOROVOD_GLOO_RENDEZVOUS_PORT": str(spec.master_port),
        "HOROVOD_GLOO_TIMEOUT_SECONDS": str(options.read_option(spec, OPTIONS, "timeoutSeconds")),
        "FERMI_HOROVOD_COMPRESSION": options.read_option(spec, OPTIONS, "compression"),
    }
    if "fusionThresholdMb" in chosen:
        env["HOROVOD_FUSION_THRESHOLD"] = str(chosen["fusionThresholdMb"] * 2**20)
    if "cycleTimeMs" in chosen:
        env["HOROVOD_CYCLE_TIME"] = f"{chosen['cycleTimeMs']:g}"
    if chosen.get("autotune"):
        env["HOROVOD_AUTOTUNE"] = "1"
    if chosen.get("timeline"):
        env["HOROVOD_TIMELINE"] = f"{spec.checkpoint_dir or '.'}/horovod_timeline_{spec.attempt}.json"
    return env
