"""Renders the README of a folder: the nodes, ranks, ports and commands of that very job, and what to do when it
fails."""

from fermi import messages
from fermi.export import scripts, torchrun
from fermi.export.shell_quotes import quote_word
from fermi.jobs.spec import JobSpec, Plan
from fermi.planning import plugins

TARGETS_WITH_SCRIPTS = ("shell", "torchrun", "compose")
"""Targets with a script for each node."""

MAX_RANKS = 64
"""Rows of the table; further ranks continue in the same way."""


def render_readme(job: JobSpec, plan: Plan, target: str, lang: str) -> str:
    texts, framework = messages.load_guide("readme", lang), plugins.get_framework(job.framework)
    snapshot = job.code.snapshot[:16] if job.code else ""
    parts = [
        texts["intro"],
        texts["nodes"] + _render_nodes(plan, target in TARGETS_WITH_SCRIPTS),
        texts["ranks"] + _render_ranks(plan),
        *([texts["code"]] if snapshot else []),
        texts[target],
    ]
    if target == "torchrun" and torchrun.is_uneven(plan):
        parts.append(texts["torchrun_uneven"])
    if target == "kubernetes":
        parts.append(texts["trouble_kubernetes"])
    else:
        parts.append(texts["trouble"])
        parts.append(texts.get(f"memory_{framework.info.stack}", ""))
    head = plan.nodes[0].node.address
    values = {
        "name": job.name, "name_by_hand": scripts.rename_exported_job(job).name, "framework": framework.name,
        "world": plan.world_size, "count": len(plan.nodes), "head": head, "host": quote_word(head),
        "snapshot": snapshot, "port": plan.master_port,
        "other_port": _choose_other_port(plan.master_port), "grace": f"{plan.grace_seconds:g}",
        "train": job.train_data or "-", "valid": job.valid_data or "-", "checkpoints": job.checkpoint_dir or "-",
    }  # fmt: skip
    return "\n".join(messages.fill_text("readme", part, values).strip() + "\n" for part in parts)


def _choose_other_port(port: int) -> int:
    return port + 1 if port < 65535 else port - 1


def _render_nodes(plan: Plan, started: bool) -> str:
    rows = []
    for node in plan.nodes:
        gpus = f"{node.node.gpu_count} × {node.node.gpu_type or 'GPU'}" if node.node.gpu_count else "CPU"
        ranks = node.format_ranks().partition(" ")[2]
        cells = (node.node_rank, node.node.name, node.node.address, gpus, ranks)
        rows.append(_render_row(*cells, f"`{scripts.get_script_name(node.node_rank)}`" if started else "-"))
    return "".join(rows)


def _render_ranks(plan: Plan) -> str:
    rows = [
        _render_row(process.rank, node.node_rank, process.local_rank, len(node.processes),
             "CPU" if process.device is None else f"GPU {process.device}")
        for node in plan.nodes
        for process in node.processes
    ]  # fmt: skip
    return "".join(rows[:MAX_RANKS]) + (_render_row(*"…" * 5) if len(rows) > MAX_RANKS else "")


def _render_row(*cells: object) -> str:
    texts = (" ".join(str(cell).split()).replace("|", "\\|").replace("{", "{{").replace("}", "}}") for cell in cells)
    return "| " + " | ".join(texts) + " |\n"
