"""Plain processes on each node, started by a shell script through the node runner that lies beside it."""

from collections.abc import Mapping
from typing import Any

from fermi.engines import bundle
from fermi.export import scripts
from fermi.export.shell_quotes import quote_assignment, quote_word
from fermi.jobs.spec import JobSpec, NodePlan, Plan, Problem


def problems(job: JobSpec) -> list[Problem]:
    return []


def files(job: JobSpec, plan: Plan, connection: Mapping[str, Any]) -> dict[str, str]:
    return {
        **render_nodes(job, plan, plan.nodes[0].node.address, connection),
        "start-all.sh": scripts.render_start_all(job, plan),
    }


def render_nodes(job: JobSpec, plan: Plan, head: str, connection: Mapping[str, Any]) -> dict[str, str]:
    """Return a script for each node, and the files that it needs. `head`: the name by which the nodes reach node 0."""
    found = {scripts.get_script_name(at.node_rank): _render_start(job, plan, at, head, connection) for at in plan.nodes}
    return found | scripts.render_configs(plan, head) | collect_modules(plan)


def collect_modules(plan: Plan) -> dict[str, str]:
    words = (part for node in plan.nodes for part in node.command)
    return {
        f"{scripts.LIB_FOLDER}/{path}": text
        for path, text in bundle.collect_modules(bundle.FOREGROUND_MODULES, words).items()
    }


def _render_start(job: JobSpec, plan: Plan, node: NodePlan, head: str, connection: Mapping[str, Any]) -> str:
    return scripts.render_start_script(job, plan, node, head, [
        "# What all ranks of this node share.",
        *scripts.render_array("environment", scripts.render_environment(node)),
        "",
        "# What each rank has for itself.",
        *scripts.render_array("ranks", (_render_rank(process.rank, process.env) for process in node.processes)),
        "",
        "# What each rank runs.",
        *scripts.render_array("command", scripts.render_command(node.command)),
        "",
        "# The nodes meet at the master's port before any rank starts. Ctrl-C ends the ranks of this node.",
        *scripts.render_array("node", [
            f"--name {quote_word(job.name)}",
            f"--node-rank {node.node_rank} --nodes {len(plan.nodes)}",
            f'--head "$head" --port {plan.master_port}',
            '--logs "${FERMI_LOGS:-$here/logs}"',
            f"--grace {plan.grace_seconds:g}",
            *scripts.list_watch_options(job),
            *scripts.list_bound_options(connection),
        ]),
        'runner=("$python" -m fermi.runner.foreground "${node[@]}" "$@" "${ranks[@]}")',
        'exec env "${environment[@]}" "${runner[@]}" -- "${command[@]}"',
    ])  # fmt: skip


def _render_rank(rank: int, env: Mapping[str, Any]) -> str:
    own = " ".join(quote_assignment(name, text, scripts.LATE_VARIABLES) for name, text in env.items())
    return f"--rank {rank} {own}"
