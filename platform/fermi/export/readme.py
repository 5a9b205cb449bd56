"""Renders the README of a folder: the nodes, ranks, ports and commands of that very job, and what to do when it
fails."""

from fermi import messages
from fermi.export import scripts, torchrun
from fermi.export.quoting import word
from fermi.jobs.spec import JobSpec, Plan
from fermi.planning import plugins

STARTED = ("shell", "torchrun", "compose")
"""Targets with a script for each node."""

MOST_RANKS = 64
"""Rows of the table; further ranks continue in the same way."""


def text(job: JobSpec, plan: Plan, target: str, lang: str) -> str:
    texts, framework = messages.guide("readme", lang), plugins.framework(job.framework)
    snapshot = job.code.snapshot[:16] if job.code else ""
    parts = [
        texts["intro"],
        texts["nodes"] + _nodes(plan, target in STARTED),
        texts["ranks"] + _ranks(plan),
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
        "name": job.name, "name_by_hand": scripts.not_the_platforms(job).name, "framework": framework.name,
        "world": plan.world_size, "count": len(plan.nodes), "head": head, "host": word(head),
        "snapshot": snapshot, "port": plan.master_port,
        "other_port": _other(plan.master_port), "grace": f"{plan.grace_seconds:g}",
        "train": job.train_data or "-", "valid": job.valid_data or "-", "checkpoints": job.checkpoint_dir or "-",
    }  # fmt: skip
    return "\n".join(messages.filled("readme", part, values).strip() + "\n" for part in parts)


def _other(port: int) -> int:
    return port + 1 if port < 65535 else port - 1


def _nodes(plan: Plan, started: bool) -> str:
    rows = []
    for node in plan.nodes:
        gpus = f"{node.node.gpu_count} × {node.node.gpu_type or 'GPU'}" if node.node.gpu_count else "CPU"
        ranks = scripts.ranks_of(node).partition(" ")[2]
        cells = (node.node_rank, node.node.name, node.node.address, gpus, ranks)
        rows.append(_row(*cells, f"`{scripts.start_name(node.node_rank)}`" if started else "-"))
    return "".join(rows)


def _ranks(plan: Plan) -> str:
    rows = [
        _row(process.rank, node.node_rank, process.local_rank, len(node.processes),
             "CPU" if process.device is None else f"GPU {process.device}")
        for node in plan.nodes
        for process in node.processes
    ]  # fmt: skip
    return "".join(rows[:MOST_RANKS]) + (_row(*"…" * 5) if len(rows) > MOST_RANKS else "")


def _row(*cells: object) -> str:
    texts = (" ".join(str(cell).split()).replace("|", "\\|").replace("{", "{{").replace("}", "}}") for cell in cells)
    return "| " + " | ".join(texts) + " |\n"
