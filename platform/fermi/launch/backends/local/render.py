"""A plan as the process table of this machine: one node runner's spec per node."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
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


@dataclass(frozen=True, slots=True)
class Setting:
    """What one node's ranks run in. `python`: their interpreter; `venv`: its virtual environment, where that stands on
    the interpreter that ranks may be forked from; `env`: variables that a task may replace; `confine`: see
    `fermi.runner.confine`."""

    python: str
    venv: str = ""
    env: Mapping[str, str] = field(default_factory=dict)
    confine: Mapping[str, Any] | None = None


def render(
    job: JobSpec,
    plan: Plan,
    *,
    run_dir: Path,
    log_dir: Path,
    cwd: Path,
    python: str,
    setting: Callable[[NodePlan], Setting],
    code: Callable[[str], Place],
    bounds: Mapping[str, Any],
) -> Rendered:
    """`python`: the interpreter of the process that ranks may be forked from. `code`: of an interpreter."""
    bindings = {Late.HEAD_HOST: "127.0.0.1", Late.FILES_DIR: str(run_dir / "files"), Late.PYTHON: python}
    fork = may_fork(job)
    files = [Artifact("file", name, resolve(text, bindings)) for name, text in plan.files.items()]
    common = {**watched(job), **bounds}
    nodes, forks = [], False
    for node in plan.nodes:
        own = setting(node)
        forked = fork and bool(own.venv or own.python == python)
        known = {**bindings, Late.PYTHON: own.python}
        content = _node(job, plan, node, known, log_dir, cwd, own)
        content |= {**common, "fork": forked, **code(own.python).order(job, node.node_rank)}
        if own.confine:
            content["confine"] = own.confine
        if own.python != python:
            content["python"] = own.python
        if own.venv:
            content["venv"] = own.venv
        nodes.append(Artifact("node", f"node-{node.node_rank}", content))
        forks = forks or forked
    later = {"preload_later": list(plan.preload_later)} if forks and plan.preload_later else {}
    modules = {"preload": list(plan.preload) if forks else [], **later}
    launch = Artifact("launch", "launch", {**modules, "success": plan.success})
    return Rendered(job.name, "local", (launch, *nodes, *files))


def may_fork(job: JobSpec) -> bool:
    """Whether ranks may be forked from a process that has imported the training stack."""
    return not any(name.startswith(READ_BEFORE_THE_SCRIPT) for name in (*job.env, *job.secret_env))


def _node(
    job: JobSpec,
    plan: Plan,
    node: NodePlan,
    bindings: Mapping[Late, str],
    log_dir: Path,
    cwd: Path,
    own: Setting,
) -> dict[str, Any]:
    env = {**own.env, **{name: resolve(value, bindings) for name, value in node.env.items()}}
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
        **({"port": plan.master_port} if node.node_rank == 0 else {}),
    }
