"""Exports torchrun on each node, for frameworks on torch.distributed."""

from collections.abc import Mapping
from typing import Any

from fermi.export import scripts, shell
from fermi.frameworks.base import Framework
from fermi.jobs.spec import JobSpec, Late, NodePlan, Plan, Problem
from fermi.planning import plugins

TORCHRUN_VARIABLES = {
    "RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE", "MASTER_ADDR",
    "MASTER_PORT", "ROLE_NAME", "ROLE_RANK", "ROLE_WORLD_SIZE", "TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT",
    "TORCHELASTIC_MAX_RESTARTS",
}  # fmt: skip
"""Variables that torchrun sets to the same values: it numbers nodes by --node-rank and ranks by node. Its run has an id
of its own."""


def problems(job: JobSpec) -> list[Problem]:
    """Return what torchrun cannot start: it has no other frameworks, and gives all ranks of a node the same
    environment."""
    if job.starts_ranks:
        return [Problem("target", "TORCHRUN_STARTS_RANKS")]
    framework = plugins.get_framework(job.framework)
    if not _is_startable(framework):
        allowed = ", ".join(each.name for each in plugins.list_frameworks() if _is_startable(each))
        params = {"framework": job.framework, "allowed": allowed}
        return [Problem("target", "TORCHRUN_NOT_FOR_FRAMEWORK", params)]
    plan = framework.plan(job)
    own = sorted(
        {name for node in plan.nodes for process in node.processes for name in process.env} - TORCHRUN_VARIABLES
    )
    return [Problem("target", "TORCHRUN_RANKS_DIFFER", {"names": ", ".join(own)})] if own else []


def _is_startable(framework: Framework) -> bool:
    """Return whether torchrun starts the framework. It comes with torch, and so cannot start models written in another
    library."""
    return (framework.info.stack, framework.info.launcher) == ("torch", "torchrun")


def is_uneven(plan: Plan) -> bool:
    return len({len(node.processes) for node in plan.nodes}) > 1


def files(job: JobSpec, plan: Plan, connection: Mapping[str, Any]) -> dict[str, str]:
    head = plan.nodes[0].node.address
    found = {
        scripts.get_script_name(node.node_rank): _render_start(job, plan, node, head, connection) for node in plan.nodes
    }
    found["start-all.sh"] = scripts.render_start_all(job, plan)
    return found | scripts.render_configs(plan, head) | shell.collect_modules(plan)


def _render_start(job: JobSpec, plan: Plan, node: NodePlan, head: str, connection: Mapping[str, Any]) -> str:
    return scripts.render_start_script(job, plan, node, head, [
        *scripts.render_array("environment", scripts.render_environment(node, without=TORCHRUN_VARIABLES)),
        "",
        *(_UNEVEN_COMMENT if is_uneven(plan) else ()),
        *scripts.render_array("command", [
            '"$python" -m torch.distributed.run  # which is torchrun, of this very interpreter',
            f"--nnodes={len(plan.nodes)} --nproc-per-node={len(node.processes)} --node-rank={node.node_rank}",
            f'--master-addr="$head" --master-port={plan.master_port} --max-restarts=0',
            *scripts.render_command(strip_interpreter(node)),
        ]),
        "# Ends what torchrun leaves behind, and all of it where the node uses more of the machine than it may.",
        *scripts.render_array("node", [
            f'--node-rank {node.node_rank} --port {plan.master_port} --no-pulse --mark ""',
            *scripts.list_bound_options(connection),
        ]),
        'runner=("$python" -m fermi.runner.foreground "${node[@]}" "$@" --rank 0)',
        'exec env "${environment[@]}" "${runner[@]}" -- "${command[@]}"',
    ])  # fmt: skip


def strip_interpreter(node: NodePlan) -> list[Any]:
    """Return `-m module …` or `script.py …`, without the interpreter."""
    return [part for index, part in enumerate(node.command) if not (index < 2 and part in (Late.PYTHON, "-u"))]


_UNEVEN_COMMENT = (
    "# The nodes have different numbers of processes. torchrun's help asks for equal ones, but with the static",
    "# rendezvous that --master-addr means it numbers ranks node after node, as it should (tried with torch 2.13).",
    "# Do not add --rdzv-backend or restarts: then it does not. The target `shell` has no such limit.",
)
