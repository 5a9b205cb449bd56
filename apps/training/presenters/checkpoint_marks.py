"""Marks the newest and the best of a task's checkpoints, and gives those without one the validation loss that the task
reported at their step."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from apps.common.texts import get_request_language
from apps.training.core import checkpoint_nodes
from apps.training.models import Checkpoint, CheckpointSource, Task
from fermi import messages
from fermi.metrics.records import WEIGHT_LAYOUTS

LOSS_NAMES = ("val_loss", "valid_loss", "eval_loss", "val/loss", "eval/loss", "validation_loss", "val loss")
MAX_NAMED = 8
MAX_MARKED = 500
"""The newest checkpoints, among which the best one is looked for."""


class CheckpointMarks(NamedTuple):
    """Paths of the newest and the best checkpoint, and losses by step."""

    newest: str
    best: str
    losses: Mapping[int, float]


def find_marks(task: Task) -> CheckpointMarks:
    """Return what is known of all checkpoints together."""
    rows = list(
        Checkpoint.objects.filter(task=task, is_complete=True)
        .order_by("-step", "-id")
        .values_list("path", "step", "val_loss", "source", "layout")[:MAX_MARKED]
    )
    losses = _read_losses(task, {step for _, step, loss, *_ in rows if loss is None})
    known = [(path, loss if loss is not None else losses.get(step)) for path, step, loss, *_ in rows]
    rated = [(loss, path) for path, loss in known if loss is not None]
    whole = [
        path for path, _, _, source, layout in rows if source == CheckpointSource.SCRIPT or layout not in WEIGHT_LAYOUTS
    ]
    newest = (whole or [path for path, *_ in rows] or [""])[0]
    return CheckpointMarks(newest, min(rated, key=lambda one: one[0])[1] if rated else "", losses)


def mark_row(row: Mapping[str, Any], marks: CheckpointMarks) -> dict[str, Any]:
    """Return the row of a checkpoint as the API answers it."""
    loss = row["valLoss"] if row["valLoss"] is not None else marks.losses.get(row["step"])
    path = row["path"]
    return {
        **row, "valLoss": loss, "newest": path == marks.newest, "best": path == marks.best,
        "nodes": checkpoint_nodes.list_node_names(row["nodes"]), "note": "" if row["complete"] else _describe_gap(row),
    }  # fmt: skip


def _describe_gap(row: Mapping[str, Any]) -> str:
    """Return which parts of an incomplete checkpoint are known, in the reader's language."""
    known, needed = checkpoint_nodes.count_parts(row["nodes"])
    names = ", ".join(checkpoint_nodes.list_node_names(row["nodes"])[:MAX_NAMED])
    language = get_request_language()
    return messages.render_text("CHECKPOINT_INCOMPLETE", language, known=known, needed=needed or "?", nodes=names)[0]


def _read_losses(task: Task, steps: set[int]) -> dict[int, float]:
    found: dict[int, float] = {}
    points = task.metrics.filter(rank=0, step__in=list(steps)[:MAX_MARKED]).order_by("pk").values_list("step", "values")
    for step, values in points[: MAX_MARKED * 20]:
        loss = next((values[name] for name in LOSS_NAMES if isinstance(values.get(name), int | float)), None)
        if loss is not None:
            found[step] = loss
    return found
