"""JAX over processes of one device each, on a mesh of `dataParallel` × `fsdpParallel` of them. With `fsdpParallel` 1
every process holds the whole model; else so many neighbouring ranks hold weights and optimizer state together.

`jax.distributed` meets at JAX_COORDINATOR_ADDRESS, which is rank 0's; a process's id and their number are RANK and
WORLD_SIZE. Devices talk through NCCL on GPUs and gloo on CPU, whatever else is asked for.
"""

import json
import re
from dataclasses import replace

from fermi.frameworks import _rank_groups
from fermi.frameworks._planning import build_plan, propose_data_parallel
from fermi.frameworks.base import Info
from fermi.jobs import elastic, gpus, memory, options, recipes
from fermi.jobs.ranks import Placement
from fermi.jobs.spec import JobSpec, Late, Plan, Problem, Proposal, Value
from fermi.schema import suggestions

INFO = Info(
    elastic="even",
    label="JAX",
    parallelism=("data", "fsdp"),
    model_size=(0, 10_000_000_000),
    stack="jax",
    launcher="",
    packages=("jaxlib",),
    reserved=("JAX_COORDINATOR_ADDRESS", "JAX_LOCAL_DEVICE_IDS"),
)

OPTIONS = options.build_schema(
    preallocate={"type": "boolean", "default": False},
    memoryFraction={"type": "number", "exclusiveMinimum": 0, "maximum": 1, "default": 0.9},
    heartbeatTimeoutSeconds={"type": "integer", "minimum": 1, "maximum": 86_400, "default": 100},
    initializationTimeoutSeconds={"type": "integer", "minimum": 1, "maximum": 86_400, "default": 300},
    batchIsGlobal={"type": "boolean", "default": False},
    remat={"type": "boolean", "default": False},
    prefetch={"type": "integer", "minimum": 0, "maximum": 64, "default": 2},
)

DATA, FSDP = "dataParallel", "fsdpParallel"
_STRATEGY = "distributedConfig.strategy"

PRELOAD = ("numpy", "ml_dtypes", "jaxlib.xla_client")
"""Without jax itself: it reads its JAX_ variables when it is imported, and a rank's would come too late."""

OFFERED_DTYPES = ("auto", "bfloat16", "float32")
_DEVICE_COUNT = re.compile(r"--xla_force_host_platform_device_count=(\S*)")


def problems(spec: JobSpec) -> list[Problem]:
    found = [*options.find_problems(spec, OPTIONS), *_check_mesh(spec), *_check_platforms(spec)]
    return [*found, *_check_devices(spec), *_check_dtype(spec), *_check_global_batch(spec)]


def warnings(spec: JobSpec) -> list[Problem]:
    used = "nccl" if _runs_on_cuda(spec) else "gloo"
    found = []
    if spec.backend not in ("auto", used):
        found.append(Problem("distributedConfig.backend", "JAX_BACKEND_FIXED", {"asked": spec.backend, "used": used}))
    if spec.entrypoint is None and spec.hyperparameters.get("numWorkers"):
        params = {"prefetch": options.read_option(spec, OPTIONS, "prefetch")}
        found.append(Problem("hyperparameters.numWorkers", "JAX_LOADS_WITH_A_THREAD", params))
    if _check_mesh(spec):
        return found
    size, better = choose_fsdp_size(spec), _rank_groups.find_natural_size(spec)
    if min(size, better) > 1 and _rank_groups.crosses_zones(spec, size) and _rank_groups.fits_in_group(spec, better):
        found.append(Problem(f"{_STRATEGY}.{FSDP}", "JAX_SHARDS_CROSS_ZONES", {"size": size, "better": better}))
    if not _rank_groups.fits_in_group(spec, size):
        enough = next(
            (ranks for ranks in suggestions.list_divisors(spec.world_size) if _rank_groups.fits_in_group(spec, ranks)),
            "–",
        )
        params = {**_describe_memory(spec, size), "size": size, "enough": enough}
        found.append(Problem(f"{_STRATEGY}.{FSDP}", "JAX_STATE_TOO_LARGE", params))
    return found


def propose(spec: JobSpec) -> Proposal:
    """Return what the given degree leaves for the other; else data parallelism where the model's state fits into each
    GPU, and shards over as few neighbours as it fits into, preferably such that no group crosses a border."""
    world = spec.world_size
    if _check_mesh(spec):
        return Proposal()
    if given := {name: spec.strategy[name] for name in (DATA, FSDP) if name in spec.strategy}:
        missing = {DATA, FSDP} - given.keys()
        if not missing or not _is_rendered(spec) or given == {DATA: world}:
            return Proposal()
        strategy = {name: world // size for name in missing for size in given.values()}
        whole = {**given, **strategy}
        params = {"size": whole[FSDP], "replicas": whole[DATA]}
        return Proposal(strategy, {}, (Problem(_STRATEGY, "PROPOSED_JAX_REST", params),))
    sizes = [1, *dict.fromkeys(size for size in (_rank_groups.find_natural_size(spec), world) if size > 1)]
    size = next((size for size in sizes if _rank_groups.fits_in_group(spec, size)), world)
    if size == 1 or spec.strategy:
        return propose_data_parallel(spec)
    params = {**_describe_memory(spec, 1), "size": size, "replicas": world // size}
    return Proposal({DATA: world // size, FSDP: size}, {}, (Problem(_STRATEGY, "PROPOSED_JAX_FSDP", params),))


def choose_fsdp_size(spec: JobSpec) -> int:
    """Return the number of ranks that hold weights and optimizer state together."""
    return int(propose(spec).to(spec).strategy.get(FSDP, 1))


def batch(spec: JobSpec) -> tuple[int, int] | None:
    found = recipes.read_batch(spec)
    if found is None or spec.entrypoint or spec.options.get("batchIsGlobal") is not True:
        return found
    return found[0] // spec.world_size, found[1]


def resized(spec: JobSpec, share: elastic.BatchDivision) -> JobSpec:
    """Return the job with shards over as many ranks as were asked for, or the most below that divide those that are
    left."""
    left = {name: value for name, value in spec.options.items() if name != "batchIsGlobal"}
    strategy = dict(spec.strategy)
    if isinstance(size := strategy.get(FSDP), int):
        strategy[FSDP] = max(
            (ranks for ranks in suggestions.list_divisors(spec.world_size) if ranks <= size), default=1
        )
    return elastic.set_batch_hyperparameters(replace(spec, options=left, strategy=strategy), share)


def plan(spec: JobSpec) -> Plan:
    """Return the plan. FERMI_JAX_MESH states the mesh for a user's own script."""
    chosen = {name: options.read_option(spec, OPTIONS, name) for name in OPTIONS["properties"]}
    size = choose_fsdp_size(spec)
    extra = {
        "dtype": _choose_precision(spec),
        "batch_is_global": chosen["batchIsGlobal"],
        "fsdp_parallel": size,
        "remat": chosen["remat"],
        "prefetch": chosen["prefetch"],
        "heartbeat_timeout_seconds": chosen["heartbeatTimeoutSeconds"],
        "initialization_timeout_seconds": chosen["initializationTimeoutSeconds"],
    }
    on_cuda = _runs_on_cuda(spec)
    env: dict[str, Value] = {
        "JAX_COORDINATOR_ADDRESS": (Late.HEAD_HOST, f":{spec.master_port}"),
        "JAX_PLATFORM_NAME": "gpu" if on_cuda else "cpu",  # or else a shell's or an image's may contradict the next
        "JAX_PLATFORMS": "cuda" if on_cuda else "cpu",
        "XLA_PYTHON_CLIENT_PREALLOCATE": "true" if chosen["preallocate"] else "false",
        "XLA_PYTHON_CLIENT_MEM_FRACTION": f"{chosen['memoryFraction']:g}",
        "FERMI_JAX_MESH": json.dumps({"data": spec.world_size // size, "fsdp": size}),
    }
    if not on_cuda:
        env |= {
            "JAX_CPU_COLLECTIVES_IMPLEMENTATION": "gloo",
            "XLA_FLAGS": "--xla_force_host_platform_device_count=1 --xla_cpu_multi_thread_eigen=false",
        }

    def rank_env(_: Placement, local_rank: int) -> dict[str, Value]:
        return {"JAX_LOCAL_DEVICE_IDS": str(local_rank)} if on_cuda else {}

    command = recipes.build_command(spec, "fermi.train.train_jax", extra)
    return build_plan(spec, command, files={}, preload=PRELOAD, node_env=lambda _: env, rank_env=rank_env)


def _describe_memory(spec: JobSpec, size: int) -> dict[str, str]:
    """Return needed and usable memory per rank, with the state in shards of `size` ranks."""
    needed = memory.compute_needed_gib(
        recipes.count_model_parameters(spec) or 0, weights=size, gradients=size, optimizer=size
    )
    return {"needed": memory.format_gib(needed), "usable": memory.format_gib(memory.compute_usable_gib(spec.nodes))}


def _is_rendered(spec: JobSpec) -> bool:
    """Return whether the plan follows the strategy. Where other degrees are asked for, too, a warning says what runs
    instead."""
    others = [value for name, value in spec.strategy.items() if name not in (DATA, FSDP)]
    return FSDP in spec.strategy or not any(isinstance(value, int) and value > 1 for value in others)


def _check_mesh(spec: JobSpec) -> list[Problem]:
    """Return what is wrong with the degrees: dataParallel × fsdpParallel is the world size."""
    world, given = spec.world_size, {name: spec.strategy[name] for name in (FSDP, DATA) if name in spec.strategy}
    wrong = [
        name for name, value in given.items() if not isinstance(value, int) or isinstance(value, bool) or value < 1
    ]
    if wrong:
        rules = [{"name": name, "found": given[name], "allowed": "integer ≥ 1"} for name in wrong]
        return [Problem(f"{_STRATEGY}.{rule['name']}", "STRATEGY_INVALID", rule) for rule in rules]
    if not _is_rendered(spec):
        return []
    left, found = world, []
    for name, value in given.items():
        only = name == DATA and FSDP in given
        allowed = [left] if only else suggestions.list_divisors(left)
        near = left if only else suggestions.suggest_divisor(value, left)
        if value not in allowed:
            params = {"name": name, "found": value, "worldSize": world, "nearest": near,
                      "allowed": ", ".join(map(str, allowed))}  # fmt: skip
            found.append(Problem(f"{_STRATEGY}.{name}", "JAX_MESH_MISMATCH", params))
        left //= near
    return found


def _read_platforms(spec: JobSpec) -> dict[str, list[str]]:
    """Return the platforms that the user's variables name; JAX_PLATFORM_NAME decides where both do."""
    names = ("JAX_PLATFORM_NAME", "JAX_PLATFORMS")
    said = {name: spec.env.get(name, "").lower().replace(" ", "").strip(",") for name in names}
    return {name: words.split(",") for name, words in said.items() if words}


def _runs_on_cuda(spec: JobSpec) -> bool:
    """Return whether the ranks run on GPUs. All processes run on one platform: a node without CUDA moves the others to
    the CPU."""
    for words in _read_platforms(spec).values():
        return words[0] in ("gpu", "cuda")
    return all(node.has_cuda for node in spec.nodes)


def _check_platforms(spec: JobSpec) -> list[Problem]:
    """Return what is wrong with the platforms. JAX_PLATFORMS=gpu would make JAX look for AMD's GPUs, too, and fail
    without them."""
    asked = _read_platforms(spec)
    without = [node.name for node in spec.nodes if not node.has_cuda]
    for name, words in asked.items():
        allowed = ("gpu", "cuda", "cpu") if name == "JAX_PLATFORM_NAME" else ("cuda", "cpu")
        if unknown := [word for word in words if word not in allowed]:
            near = "cpu" if without else "cuda"
            params = {"name": name, "found": unknown[0], "allowed": ", ".join(allowed), "nearest": near}
            return [Problem(f"env.{name}", "JAX_PLATFORM_UNKNOWN", params)]
    chosen, listed = (asked.get(name, []) for name in ("JAX_PLATFORM_NAME", "JAX_PLATFORMS"))
    if chosen and listed and chosen[0].replace("gpu", "cuda") not in listed:
        params = {"found": chosen[0], "listed": ",".join(listed), "nearest": listed[0]}
        return [Problem("env.JAX_PLATFORM_NAME", "JAX_PLATFORMS_DIFFER", params)]
    if asked and without and _runs_on_cuda(spec):
        name, words = next(iter(asked.items()))
        params = {"name": name, "found": words[0], "environments": ", ".join(without), "nearest": "cpu"}
        return [Problem(f"env.{name}", "JAX_PLATFORM_ABSENT", params)]
    return []


def _choose_precision(spec: JobSpec) -> str:
    """Return bfloat16 where every GPU has it, else float32: nothing here scales a float16 loss."""
    wanted = spec.hyperparameters.get("dtype", "auto")
    best = gpus.choose_precision(spec.nodes, wanted) if _runs_on_cuda(spec) or wanted != "auto" else "float32"
    return "float32" if best == "float16" else best


def _check_devices(spec: JobSpec) -> list[Problem]:
    """Return the problem of variables that give a process several devices: all processes must have equally many, so
    each has one."""
    counts = {"XLA_FLAGS": _DEVICE_COUNT.findall(spec.env.get("XLA_FLAGS", ""))}
    if "JAX_NUM_CPU_DEVICES" in spec.env:
        counts["JAX_NUM_CPU_DEVICES"] = [spec.env["JAX_NUM_CPU_DEVICES"]]
    return [
        Problem(f"env.{name}", "JAX_ONE_DEVICE_PER_PROCESS", {"name": name, "found": found[-1], "nearest": 1})
        for name, found in counts.items()
        if found and found[-1] != "1"
    ]


def _check_dtype(spec: JobSpec) -> list[Problem]:
    if spec.entrypoint is not None or spec.hyperparameters.get("dtype") != "float16":
        return []
    allowed, label = " | ".join(OFFERED_DTYPES), INFO.label
    params = {"found": "float16", "framework": label, "allowed": allowed, "nearest": "bfloat16"}
    return [Problem("hyperparameters.dtype", "DTYPE_NOT_OFFERED", params)]


def _check_global_batch(spec: JobSpec) -> list[Problem]:
    """Return the problem of a global batch that cannot be divided: each process gets batch size // number of
    processes."""
    batch, size = spec.hyperparameters.get("batchSize", recipes.DEFAULT_BATCH_SIZE), spec.world_size
    if spec.entrypoint is not None or spec.options.get("batchIsGlobal") is not True:
        return []
    if not isinstance(batch, int) or batch < 1 or batch % size == 0:
        return []
    params = {"batch": batch, "worldSize": size, "nearest": suggestions.suggest_multiples(batch, size)}
    return [Problem("hyperparameters.batchSize", "BATCH_NOT_SHAREABLE", params)]
