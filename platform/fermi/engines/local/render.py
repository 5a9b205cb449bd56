"""A plan as the processes of this machine: one node runner's spec per node."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fermi.engines.fork_rules import can_fork_ranks, explain_import
from fermi.jobs.code import CodeLocation
from fermi.jobs.spec import Artifact, JobSpec, Late, NodePlan, Plan, Rendered, resolve
from fermi.runner.channel import OTHER_PYTHON


@dataclass(frozen=True, slots=True)
class NodeSetting:
    """What one node's ranks run in. `python`: their interpreter; `venv`: its virtual environment, where that is based
    on the interpreter that ranks may be forked from; `env`: variables that a task may replace; `confine`: see
    `fermi.runner.sandbox`."""

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
    setting: Callable[[NodePlan], NodeSetting],
    code: Callable[[str], CodeLocation],
    bounds: Mapping[str, Any],
    stands_by: bool,
) -> Rendered:
    """Return the specs and files of an attempt. `python`: the interpreter of the process that ranks may be forked from.
    `setting`: of a node; `code`: location of the code for an interpreter. `stands_by`: such a process does."""
    bindings = {Late.HEAD_HOST: "127.0.0.1", Late.FILES_DIR: str(run_dir / "files"), Late.PYTHON: python}
    fork = can_fork_ranks(job)
    files = [Artifact("file", name, resolve(text, bindings)) for name, text in plan.files.items()]
    common = {**job.build_watch_options(), **bounds}
    nodes, forks = [], False
    for node in plan.nodes:
        own = setting(node)
        forked = fork and bool(own.venv or own.python == python)
        known = {**bindings, Late.PYTHON: own.python}
        content = _build_node_spec(job, plan, node, known, log_dir, cwd, own)
        content |= {**common, "fork": forked, **code(own.python).order(job, node.node_rank)}
        if stands_by and (why := explain_import(job) or ("" if forked else f"{OTHER_PYTHON} {own.python}")):
            content["imports"] = why
        if own.confine:
            content["confine"] = own.confine
        if own.python != python:
            content["python"] = own.python
        if own.venv:
            content["venv"] = own.venv
        nodes.append(Artifact("node", f"node-{node.node_rank}", content))
        forks = forks or forked
    launch = Artifact("launch", "launch", {"preload": list(plan.preload) if forks else [], "success": plan.success})
    return Rendered(job.name, "local", (launch, *nodes, *files))


def _build_node_spec(
    job: JobSpec,
    plan: Plan,
    node: NodePlan,
    bindings: Mapping[Late, str],
    log_dir: Path,
    cwd: Path,
    own: NodeSetting,
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
