"""Marks the newest and the best of a task's checkpoints, and gives those without one the validation loss that the task
reported at their step."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from apps.common.texts import get_request_language
from apps.training.core import checkpoint_nodes
from apps.training.models import Checkpoint, CheckpointSource, Task
from fermi import messages
from fermi.diagnosis.collective_groups import format_names
from fermi.metrics import ratings
from fermi.metrics.records import WEIGHT_LAYOUTS

MAX_MARKED = 500
"""The newest checkpoints, among which the best one is looked for."""
TRAINER_CHOICE = "best_model_checkpoint"
"""By what a checkpoint is the best that the Hugging Face Trainer itself holds for it."""


class CheckpointMarks(NamedTuple):
    """Paths of the newest and the best checkpoint, the name of the value by which it is the best, and losses by
    step."""

    newest: str
    best: str
    losses: Mapping[int, float]
    best_by: str = ""


def find_marks(task: Task) -> CheckpointMarks:
    """Return what is known of all checkpoints together."""
    rows = list(
        Checkpoint.objects.filter(task=task, is_complete=True)
        .order_by("-step", "-id")
        .only("path", "step", "val_loss", "source", "layout", "nodes")[:MAX_MARKED]
    )
    measured = _read_values(task, {row.step for row in rows})
    losses = {
        step: found[1] for step, values in measured.items() if (found := ratings.find_value(values, ratings.LOSS))
    }
    whole = [row for row in rows if row.source == CheckpointSource.SCRIPT or row.layout not in WEIGHT_LAYOUTS]
    newest = (whole or rows)[0].path if rows else ""
    best, best_by = _find_best(task, rows, measured)
    return CheckpointMarks(newest, best, losses, best_by)


def _find_best(
    task: Task, rows: Sequence[Checkpoint], measured: Mapping[int, Mapping[str, float | None]]
) -> tuple[str, str]:
    """Return the path of the best checkpoint and by what it is: the script's own word, or else the values that were
    measured at its step (`fermi.metrics.ratings`); empty texts where nothing says so."""
    said = next((one["best_step"] for row in rows for one in row.nodes.values() if "best_step" in one), None)
    if chosen := next((row for row in rows if said is not None and row.step == said and row.nodes), None):
        return chosen.path, TRAINER_CHOICE
    names = (ratings.CHOICE_PARAMETER, ratings.DIRECTION_PARAMETER)
    parameters = dict(task.parameters.filter(name__in=names).values_list("name", "value"))
    rated = [
        (row.path, {**measured.get(row.step, {}), **({} if row.val_loss is None else {"val_loss": row.val_loss})})
        for row in rows
    ]
    return ratings.find_best(rated, ratings.list_quantities(parameters)) or ("", "")


def mark_row(row: Mapping[str, Any], marks: CheckpointMarks) -> dict[str, Any]:
    """Return the row of a checkpoint as the API answers it."""
    loss = row["valLoss"] if row["valLoss"] is not None else marks.losses.get(row["step"])
    path = row["path"]
    return {
        **row, "valLoss": loss, "newest": path == marks.newest, "best": path == marks.best,
        "bestBy": marks.best_by if path == marks.best else "",
        "nodes": checkpoint_nodes.list_node_names(row["nodes"]), "note": "" if row["complete"] else _describe_gap(row),
    }  # fmt: skip


def _describe_gap(row: Mapping[str, Any]) -> str:
    """Return which parts of an incomplete checkpoint are known, in the reader's language."""
    known, needed = checkpoint_nodes.count_parts(row["nodes"])
    names = format_names(checkpoint_nodes.list_node_names(row["nodes"]))
    language = get_request_language()
    return messages.render_text("CHECKPOINT_INCOMPLETE", language, known=known, needed=needed or "?", nodes=names)[0]


def _read_values(task: Task, steps: set[int]) -> dict[int, dict[str, float | None]]:
    """Return what rank 0 measured at these steps."""
    found: dict[int, dict[str, float | None]] = {}
    points = task.metrics.filter(rank=0, step__in=list(steps)[:MAX_MARKED]).order_by("pk").values_list("step", "values")
    for step, values in points[: MAX_MARKED * 20]:
        found.setdefault(step, {}).update(values)
    return found
