"""Tells by which value checkpoints are compared, and which of two is better. Pure.

What the script itself compares by comes first (the Hugging Face Trainer's `metric_for_best_model`), then the loss of a
validation, then another value of one: an accuracy or a score, where more is better.
"""

import math
import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

CHOICE_PARAMETER, DIRECTION_PARAMETER = "metric_for_best_model", "greater_is_better"
"""Of `transformers.TrainingArguments` (training_args.py); without the second a loss is to be small, and all else
large."""
SCORES = (
    "accuracy", "acc", "acc_1", "acc1", "top_1", "top1", "acc_top1", "f1", "macro_f1", "auc", "auroc", "map", "map50",
    "miou", "iou", "dice", "bleu", "rouge_l", "rougel", "psnr", "r2", "score", "mean_reward", "reward",
)  # fmt: skip
"""Values of which more is better, the more common ones first."""
_VALIDATION = re.compile(r"(?:val|valid|validation|eval|test|dev)_(.+)")
_SEPARATORS = re.compile(r"[^a-z0-9]+")


class Quantity(NamedTuple):
    """What checkpoints are compared by. `name`: in lower case with `_` between words, without `val_`."""

    name: str
    is_more_better: bool


LOSS = Quantity("loss", False)


def list_quantities(parameters: Mapping[str, object]) -> list[Quantity]:
    """Return what checkpoints may be compared by, the first one first. `parameters`: those of the task, by name."""
    chosen = str(parameters.get(CHOICE_PARAMETER) or "")
    found = [LOSS, *(Quantity(name, True) for name in SCORES)]
    if not chosen or chosen == "None":
        return found
    name = _strip(chosen)
    said = str(parameters.get(DIRECTION_PARAMETER)).lower()
    is_more_better = said in ("true", "1", "1.0") if said in ("true", "false", "1", "0", "1.0", "0.0") else not (
        name.endswith("loss")
    )  # fmt: skip
    return [Quantity(name, is_more_better), *found]


def find_value(values: Mapping[str, float | None], quantity: Quantity) -> tuple[str, float] | None:
    """Return the name and the value that a validation has for the quantity, or else a test; None where neither has."""
    found = None
    for name, value in values.items():
        match = _VALIDATION.fullmatch(_normalize(name))
        if match and match[1] == quantity.name and value is not None and math.isfinite(value):
            if not name.lower().startswith("test"):
                return name, value
            found = name, value
    return found


def find_best(
    rated: Iterable[tuple[str, Mapping[str, float | None]]], quantities: Iterable[Quantity]
) -> tuple[str, str] | None:
    """Return the key that is best, and the name of the value that says so; None where nothing does. `rated`: keys with
    what was measured, the newest first, which wins where two are equal."""
    rows = list(rated)
    for quantity in quantities:
        sign = 1 if quantity.is_more_better else -1
        known = [(sign * found[1], key, found[0]) for key, values in rows if (found := find_value(values, quantity))]
        if known:
            _, key, name = max(known, key=lambda one: one[0])
            return key, name
    return None


def _normalize(name: str) -> str:
    return _SEPARATORS.sub("_", name.lower()).strip("_")


def _strip(name: str) -> str:
    """Return the name of a quantity without its `eval_`."""
    plain = _normalize(name)
    match = _VALIDATION.fullmatch(plain)
    return match[1] if match else plain
