"""A plan as the process table of this machine: one node runner's spec per node."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fermi.launch.backends.watched import watched
from fermi.launch.code import Place
from fermi.launch.spec import Artifact, JobSpec, Late, NodePlan, Plan, Rendered, resolve

READ_BEFORE_THE_SCRIPT = (
    "PYTHON",
    "LD_",
    "OMP_",
    "GOMP_",
    "MKL_",
    "MKLDNN_",
    "DNNL_",
    "ONEDNN_",
    "KMP_",
    "OPENBLAS_",
    "GOTO_",
    "NPY_",
    "NUMPY_",
    "TORCH",
    "PYTORCH_",
    "AOT_",
    "AOTINDUCTOR_",
    "INDUCTOR_",
    "CUTLASS_",
    "CUTEDSL_",
    "TRITON_DEBUG",
    "TRITON_INTERPRET",
    "TRITON_ENABLE_PYTHON_STACKTRACE",
    "TRITON_INSTRUMENTATION_MODE",
    "TRITON_BACKENDS_IN_TREE",
    "TRITON_PLUGIN_PATHS",
    "CUDA_LAUNCH_BLOCKING",
    "CUDA_PREFER_SPINLOCKS_ON_HOST",
    "CUDAHOSTCXX",
    "CXX",
    "CUBLAS_LOG",
    "CUBLASLT_DISABLE_CPU_INSTRUCTIONS_MASK",
    "NVRTC_",
    "KINETO_",
    "MALLOC_",
    "GLIBC_",
)
"""Variables that the interpreter or a library reads while it starts or is imported. Where the user sets one, ranks are
executed afresh instead of being forked from a process that has already read it. Found by watching `getenv` while
torch 2.13 (and 2.11 for CUDA 13) and numpy are imported (tests/gpu, `read-before-the-fork`). Of families of which most
are read later, and which tasks often set (CUDA_VISIBLE_DEVICES, TRITON_CACHE_DIR, NCCL_…), only those that are read
then: where Triton reads TRITON_INTERPRET after the fork, for example, the script's kernels would be interpreted and
those of its own language, made when it was imported, would not."""


def render(
    job: JobSpec,
    plan: Plan,
    *,
    run_dir: Path,
    log_dir: Path,
    cwd: Path,
    python: str,
    confine: Mapping[str, Any] | None = None,
    code: Place,
    bounds: Mapping[str, Any],
) -> Rendered:
    bindings = {Late.HEAD_HOST: "127.0.0.1", Late.FILES_DIR: str(run_dir / "files"), Late.PYTHON: python}
    fork = not any(name.startswith(READ_BEFORE_THE_SCRIPT) for name in (*job.env, *job.secret_env))
    files = [Artifact("file", name, resolve(text, bindings)) for name, text in plan.files.items()]
    common = {**watched(job), **bounds, "fork": fork, **({"confine": confine} if confine else {})}
    nodes = [
        Artifact("node", f"node-{node.node_rank}", _node(job, plan, node, bindings, log_dir, cwd, common, code))
        for node in plan.nodes
    ]
    later = {"preload_later": list(plan.preload_later)} if fork and plan.preload_later else {}
    modules = {"preload": list(plan.preload) if fork else [], **later}
    launch = Artifact("launch", "launch", {**modules, "success": plan.success})
    return Rendered(job.name, "local", (launch, *nodes, *files))


def _node(
    job: JobSpec,
    plan: Plan,
    node: NodePlan,
    bindings: Mapping[Late, str],
    log_dir: Path,
    cwd: Path,
    common: Mapping[str, Any],
    code: Place,
) -> dict[str, Any]:
    env = {name: resolve(value, bindings) for name, value in node.env.items()}
    env.setdefault("GLOO_SOCKET_IFNAME", "lo")  # all nodes are this machine, whatever its host name resolves to
    if (gpus := node.node.engine.get("gpus")) and node.node.has_cuda:
        env.setdefault("CUDA_VISIBLE_DEVICES", ",".join(map(str, gpus)))
    return {
        "name": job.name,
        "node_rank": node.node_rank,
        "node": node.node.name,
        "command": [resolve(word, bindings) for word in node.command],
        "cwd": str(cwd),
        "env": env,
        "ranks": [
            {
                "rank": process.rank,
                "local_rank": process.local_rank,
                "env": {name: resolve(value, bindings) for name, value in process.env.items()},
                "log": str(log_dir / f"{process.rank}.log"),
            }
            for process in node.processes
        ],
        "stop_signal": plan.stop_signal,
        "grace_seconds": plan.grace_seconds,
        **common,
        **code.order(job, node.node_rank),
        **({"port": plan.master_port} if node.node_rank == 0 else {}),
    }
