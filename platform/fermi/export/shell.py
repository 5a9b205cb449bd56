"""Plain processes on each node, started by a shell script through the node runner that lies beside it."""

from collections.abc import Mapping
from typing import Any

from fermi.engines import bundle
from fermi.export import scripts
from fermi.export.quoting import assignment, word
from fermi.jobs.spec import JobSpec, NodePlan, Plan, Problem


def problems(job: JobSpec) -> list[Problem]:
    return []


def files(job: JobSpec, plan: Plan, connection: Mapping[str, Any]) -> dict[str, str]:
    return {**nodes(job, plan, plan.nodes[0].node.address, connection), "start-all.sh": scripts.start_all(job, plan)}


def nodes(job: JobSpec, plan: Plan, head: str, connection: Mapping[str, Any]) -> dict[str, str]:
    """Return a script for each node, and the files that it needs. `head`: the name by which the nodes reach node 0."""
    found = {scripts.start_name(at.node_rank): _start(job, plan, at, head, connection) for at in plan.nodes}
    return found | scripts.configs(plan, head) | library(plan)


def library(plan: Plan) -> dict[str, str]:
    words = (part for node in plan.nodes for part in node.command)
    return {f"{scripts.LIB}/{path}": text for path, text in bundle.modules(bundle.FOREGROUND, words).items()}


def _start(job: JobSpec, plan: Plan, node: NodePlan, head: str, connection: Mapping[str, Any]) -> str:
    return scripts.start(job, plan, node, head, [
        "# What all ranks of this node share.",
        *scripts.array("environment", scripts.environment(node)),
        "",
        "# What each rank has for itself.",
        *scripts.array("ranks", (_rank(process.rank, process.env) for process in node.processes)),
        "",
        "# What each rank runs.",
        *scripts.array("command", scripts.command(node.command)),
        "",
        "# The nodes meet at the master's port before any rank starts. Ctrl-C ends the ranks of this node.",
        *scripts.array("node", [
            f"--name {word(job.name)}",
            f"--node-rank {node.node_rank} --nodes {len(plan.nodes)}",
            f'--head "$head" --port {plan.master_port}',
            '--logs "${FERMI_LOGS:-$here/logs}"',
            f"--grace {plan.grace_seconds:g}",
            *scripts.watched(job),
            *scripts.bounded(connection),
        ]),
        'runner=("$python" -m fermi.runner.foreground "${node[@]}" "$@" "${ranks[@]}")',
        'exec env "${environment[@]}" "${runner[@]}" -- "${command[@]}"',
    ])  # fmt: skip


def _rank(rank: int, env: Mapping[str, Any]) -> str:
    own = " ".join(assignment(name, text, scripts.LATE) for name, text in env.items())
    return f"--rank {rank} {own}"
