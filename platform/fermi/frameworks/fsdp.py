"""PyTorch FSDP2 (`fully_shard`): parameters, gradients and optimizer state are split over the ranks of a shard group.

full shard      one group of all ranks: least memory, most traffic
hybrid shard    groups of `shardSize` neighbouring ranks, replicated across groups; between groups there is only the
                traffic of data parallelism, so a group belongs inside a node or a zone

    ranks   0 1 │ 2 3        shardSize 2: each row of the mesh (replicate 2 × shard 2) holds the model once
"""

from typing import Any

import yaml

from fermi.frameworks import _rank_groups
from fermi.frameworks._planning import build_plan, propose_data_parallel
from fermi.frameworks.base import Info
from fermi.jobs import batch_shares, gpus, memory, network, options, rank_env, recipes
from fermi.jobs.spec import JobSpec, Late, Plan, Problem, Proposal, Value
from fermi.schema import suggestions

INFO = Info(
    elastic="uneven",
    label="PyTorch FSDP",
    parallelism=("data", "sharded"),
    model_size=(1_000_000_000, 10_000_000_000),
)

OPTIONS = options.build_schema(
    sharding={"enum": ["auto", "full", "hybrid"], "default": "auto"},
    shardSize={"type": "integer", "minimum": 1},
    mixedPrecision={"enum": ["auto", "bfloat16", "float16", "float32"], "default": "auto"},
    cpuOffload={"type": "boolean", "default": False},
    activationCheckpointing={"type": "boolean", "default": False},
    reshardAfterForward={"type": "boolean", "default": True},
    timeoutSeconds=network.TIMEOUT_SCHEMA,
    batchShare=batch_shares.OPTION_SCHEMA,
)

PRELOAD = (
    "torch",
    "numpy",
    "torch.distributed",
    "torch.distributed.fsdp",
    "torch.distributed.checkpoint.state_dict",
    "torch._dynamo",
)

_SHARDING, _SHARD_SIZE = "distributedConfig.options.sharding", "distributedConfig.options.shardSize"


def problems(spec: JobSpec) -> list[Problem]:
    found = options.find_problems(spec, OPTIONS)
    if found:
        return found
    size, world = spec.options.get("shardSize"), spec.world_size
    if size is not None and spec.options.get("sharding") == "full" and size != world:
        found.append(
            Problem(_SHARD_SIZE, "FSDP_FULL_IS_ALL_RANKS", {"found": size, "worldSize": world, "nearest": world})
        )
    elif size is not None and world % size:
        allowed = ", ".join(map(str, suggestions.list_divisors(world)))
        params = {
            "found": size,
            "worldSize": world,
            "nearest": suggestions.suggest_divisor(size, world),
            "allowed": allowed,
        }
        found.append(Problem(_SHARD_SIZE, "FSDP_MESH_MISMATCH", params))
    option, stated = options.read_option(spec, OPTIONS, "mixedPrecision"), _read_dtype(spec)
    if "auto" not in (option, stated) and option != stated:
        params = {"option": option, "hyperparameter": stated, "nearest": stated}
        found.append(Problem("distributedConfig.options.mixedPrecision", "PRECISIONS_DIFFER", params))
    return found + batch_shares.find_problems(spec)


def warnings(spec: JobSpec) -> list[Problem]:
    if problems(spec):
        return []
    found = batch_shares.find_warnings(spec)
    size, better = choose_shard_size(spec), _rank_groups.find_natural_size(spec)
    params = {"size": size, "replicas": spec.world_size // size, "better": better}
    if size < spec.world_size and spec.options.get("sharding", "auto") == "auto" and "shardSize" not in spec.options:
        found.append(Problem(_SHARDING, "FSDP_HYBRID_CHOSEN", params))
    if size == 1 < spec.world_size:
        found.append(Problem(_SHARDING, "FSDP_NOTHING_SHARDED", params))
    if better > 1 and _rank_groups.crosses_zones(spec, size):
        found.append(Problem(_SHARDING, "FSDP_SHARDS_CROSS_ZONES", params))
    return found


def propose(spec: JobSpec) -> Proposal:
    """Return the mesh, the precision, and CPU memory where all GPUs together are too small for the model's state."""
    if options.find_problems(spec, OPTIONS):
        return propose_data_parallel(spec)
    first = propose_data_parallel(spec)
    chosen: dict[str, Any] = {}
    reasons = [
        *first.reasons,
        *_propose_mesh(spec, chosen),
        *_propose_precision(spec, chosen),
        *_propose_offload(spec, chosen),
    ]
    return Proposal(first.strategy, chosen, tuple(reasons))


def _propose_mesh(spec: JobSpec, chosen: dict[str, Any]) -> list[Problem]:
    kind = options.read_option(spec, OPTIONS, "sharding")
    if "shardSize" in spec.options or kind == "full":
        return []
    size, world, natural = choose_shard_size(spec), spec.world_size, _rank_groups.find_natural_size(spec)
    params = {"size": size, "replicas": world // size, "worldSize": world, "natural": natural}
    if kind == "hybrid":
        chosen["shardSize"] = size
        return [Problem(_SHARD_SIZE, "PROPOSED_SHARD_SIZE", params)]
    if size < world:
        chosen |= {"sharding": "hybrid", "shardSize": size}
        return [Problem(_SHARDING, "PROPOSED_HYBRID_SHARD", params)]
    chosen["sharding"] = "full"
    in_the_way = _rank_groups.spans_zones(spec) and natural > 1 and not _rank_groups.fits_in_group(spec, natural)
    return [Problem(_SHARDING, "PROPOSED_FULL_FOR_MEMORY" if in_the_way else "PROPOSED_FULL_SHARD", params)]


def _propose_precision(spec: JobSpec, chosen: dict[str, Any]) -> list[Problem]:
    if options.read_option(spec, OPTIONS, "mixedPrecision") != "auto" or _read_dtype(spec) != "auto":
        return []
    chosen["mixedPrecision"] = gpus.choose_precision(spec.nodes)
    on = " / ".join(dict.fromkeys(node.gpu_type if node.has_cuda else "CPU" for node in spec.nodes))
    params = {"precision": chosen["mixedPrecision"], "devices": on}
    return [Problem("distributedConfig.options.mixedPrecision", "PROPOSED_PRECISION", params)]


def _propose_offload(spec: JobSpec, chosen: dict[str, Any]) -> list[Problem]:
    size = chosen.get("shardSize", choose_shard_size(spec))
    if "cpuOffload" in spec.options or _rank_groups.fits_in_group(spec, size):
        return []
    chosen["cpuOffload"] = True
    needed = memory.compute_needed_gib(
        recipes.count_model_parameters(spec) or 0, weights=size, gradients=size, optimizer=size
    )
    params = {
        "needed": memory.format_gib(needed),
        "usable": memory.format_gib(memory.compute_usable_gib(spec.nodes)),
        "ranks": size,
    }
    return [Problem("distributedConfig.options.cpuOffload", "PROPOSED_OFFLOAD", params)]


def choose_shard_size(spec: JobSpec) -> int:
    """Return the number of ranks that hold the model together. `auto`: those inside a zone or node when zones differ
    and the model fits into so few, else all."""
    if (chosen := spec.options.get("shardSize")) is not None:
        return int(chosen)
    kind = options.read_option(spec, OPTIONS, "sharding")
    natural = _rank_groups.find_natural_size(spec)
    if kind == "hybrid" or (
        kind == "auto" and _rank_groups.spans_zones(spec) and natural > 1 and _rank_groups.fits_in_group(spec, natural)
    ):
        return natural
    return spec.world_size


def _read_dtype(spec: JobSpec) -> Any:
    """Return the recipe's own hyperparameter for `mixedPrecision`; in a user's script it may mean anything."""
    return "auto" if spec.entrypoint else spec.hyperparameters.get("dtype", "auto")


def plan(spec: JobSpec) -> Plan:
    """Return the plan. `fsdp_config.yaml` is for a user's own script: FERMI_FSDP_CONFIG is its path."""
    spec = propose(spec).to(spec)
    stated, backend = _read_dtype(spec), rank_env.choose_backend(spec)
    option = options.read_option(spec, OPTIONS, "mixedPrecision")
    size = choose_shard_size(spec)
    settings = {
        "dtype": gpus.choose_precision(spec.nodes, option if stated == "auto" else stated),
        "cpu_offload": options.read_option(spec, OPTIONS, "cpuOffload"),
        "activation_checkpointing": options.read_option(spec, OPTIONS, "activationCheckpointing"),
        "reshard_after_forward": options.read_option(spec, OPTIONS, "reshardAfterForward"),
    }
    extra = {"backend": backend, "shard_size": size, **settings}
    extra["no_reshard_after_forward"] = not extra.pop("reshard_after_forward")  # on, unless its opposite is said
    env: dict[str, Value] = {"FERMI_FSDP_CONFIG": (Late.FILES_DIR, "/fsdp_config.yaml")}
    env |= network.build_torch_env(spec, backend)
    by_rank = batch_shares.build_rank_env(spec)
    mesh = {"replicate": spec.world_size // size, "shard": size}
    config = {"world_size": spec.world_size, "mesh": mesh, **settings}
    return build_plan(
        spec,
        recipes.build_command(spec, "fermi.train.train_fsdp", extra),
        files={"fsdp_config.yaml": yaml.safe_dump(config, sort_keys=False)},
        preload=PRELOAD,
        node_env=lambda _: env,
        rank_env=lambda at, local: by_rank.get(at.first_rank + local, {}),
    )
