"""JAX over processes of one device each: every process holds the whole model; XLA all-reduces the gradients.

`jax.distributed` meets at JAX_COORDINATOR_ADDRESS, which is rank 0's; a process's id and their number are RANK and
WORLD_SIZE. Devices talk through NCCL on GPUs and gloo on CPU, whatever else is asked for.
"""

import re
from dataclasses import replace

from fermi.launch import elastic, gpus, nearest, options, recipes
from fermi.launch.frameworks._plans import gang
from fermi.launch.frameworks.base import Info
from fermi.launch.ranks import Placement
from fermi.launch.spec import JobSpec, Late, Plan, Problem, Value

INFO = Info(
    elastic="even",
    label="JAX",
    model_size=(0, 1_000_000_000),
    stack="jax",
    launcher="",
    packages=("jaxlib",),
    reserved=("JAX_COORDINATOR_ADDRESS", "JAX_LOCAL_DEVICE_IDS"),
)

OPTIONS = options.schema(
    preallocate={"type": "boolean", "default": False},
    memoryFraction={"type": "number", "exclusiveMinimum": 0, "maximum": 1, "default": 0.9},
    heartbeatTimeoutSeconds={"type": "integer", "minimum": 1, "maximum": 86_400, "default": 100},
    initializationTimeoutSeconds={"type": "integer", "minimum": 1, "maximum": 86_400, "default": 300},
    batchIsGlobal={"type": "boolean", "default": False},
)

PRELOAD = ("numpy", "ml_dtypes", "jaxlib.xla_client")
"""Not jax itself: it reads its JAX_ variables when it is imported, and a rank's would come too late."""

DTYPES = ("auto", "bfloat16", "float32")
_DEVICE_COUNT = re.compile(r"--xla_force_host_platform_device_count=(\S*)")


def problems(spec: JobSpec) -> list[Problem]:
    return [*options.problems(spec, OPTIONS), *_devices(spec), *_dtype(spec), *_global_batch(spec)]


def warnings(spec: JobSpec) -> list[Problem]:
    used = "nccl" if _on_cuda(spec) else "gloo"
    if spec.backend in ("auto", used):
        return []
    return [Problem("distributedConfig.backend", "JAX_BACKEND_FIXED", {"asked": spec.backend, "used": used})]


def batch(spec: JobSpec) -> tuple[int, int] | None:
    found = recipes.batch(spec)
    if found is None or spec.entrypoint or spec.options.get("batchIsGlobal") is not True:
        return found
    return found[0] // spec.world_size, found[1]


def resized(spec: JobSpec, share: elastic.Division) -> JobSpec:
    left = {name: value for name, value in spec.options.items() if name != "batchIsGlobal"}
    return elastic.recipe(replace(spec, options=left), share)


def plan(spec: JobSpec) -> Plan:
    chosen = {name: options.value(spec, OPTIONS, name) for name in OPTIONS["properties"]}
    extra = {
        "dtype": _precision(spec),
        "batch_is_global": chosen["batchIsGlobal"],
        "heartbeat_timeout_seconds": chosen["heartbeatTimeoutSeconds"],
        "initialization_timeout_seconds": chosen["initializationTimeoutSeconds"],
    }
    on_cuda = _on_cuda(spec)
    env: dict[str, Value] = {
        "JAX_COORDINATOR_ADDRESS": (Late.HEAD_HOST, f":{spec.master_port}"),
        "XLA_PYTHON_CLIENT_PREALLOCATE": "true" if chosen["preallocate"] else "false",
        "XLA_PYTHON_CLIENT_MEM_FRACTION": f"{chosen['memoryFraction']:g}",
    }
    if on_cuda:
        env["JAX_PLATFORMS"] = "cuda"
    else:
        env |= {
            "JAX_PLATFORMS": "cpu",
            "JAX_CPU_COLLECTIVES_IMPLEMENTATION": "gloo",
            "XLA_FLAGS": "--xla_force_host_platform_device_count=1 --xla_cpu_multi_thread_eigen=false",
        }

    def rank_env(_: Placement, local_rank: int) -> dict[str, Value]:
        return {"JAX_LOCAL_DEVICE_IDS": str(local_rank)} if on_cuda else {}

    command = recipes.command(spec, "fermi.train.train_jax", extra)
    return gang(spec, command, files={}, preload=PRELOAD, node_env=lambda _: env, rank_env=rank_env)


def _on_cuda(spec: JobSpec) -> bool:
    """All processes run on one platform: a node without CUDA brings the others to the CPU."""
    return all(node.has_cuda for node in spec.nodes)


def _precision(spec: JobSpec) -> str:
    """bfloat16 where every GPU has it, else float32: nothing here scales a float16 loss."""
    wanted = spec.hyperparameters.get("dtype", "auto")
    return "float32" if (best := gpus.precision(spec.nodes, wanted)) == "float16" else best


def _devices(spec: JobSpec) -> list[Problem]:
    """Processes must have equally many devices, so each has one."""
    counts = {"XLA_FLAGS": _DEVICE_COUNT.findall(spec.env.get("XLA_FLAGS", ""))}
    if "JAX_NUM_CPU_DEVICES" in spec.env:
        counts["JAX_NUM_CPU_DEVICES"] = [spec.env["JAX_NUM_CPU_DEVICES"]]
    return [
        Problem(f"env.{name}", "JAX_ONE_DEVICE_PER_PROCESS", {"name": name, "found": found[-1], "nearest": 1})
        for name, found in counts.items()
        if found and found[-1] != "1"
    ]


def _dtype(spec: JobSpec) -> list[Problem]:
    if spec.entrypoint is not None or spec.hyperparameters.get("dtype") != "float16":
        return []
    allowed, label = " | ".join(DTYPES), INFO.label
    params = {"found": "float16", "framework": label, "allowed": allowed, "nearest": "bfloat16"}
    return [Problem("hyperparameters.dtype", "DTYPE_NOT_OFFERED", params)]


def _global_batch(spec: JobSpec) -> list[Problem]:
    """Each process gets an equal share: batch size // number of processes."""
    batch, size = spec.hyperparameters.get("batchSize", recipes.DEFAULT_BATCH_SIZE), spec.world_size
    if spec.entrypoint is not None or spec.options.get("batchIsGlobal") is not True:
        return []
    if not isinstance(batch, int) or batch < 1 or batch % size == 0:
        return []
    params = {"batch": batch, "worldSize": size, "nearest": nearest.multiples(batch, size)}
    return [Problem("hyperparameters.batchSize", "BATCH_NOT_SHAREABLE", params)]
