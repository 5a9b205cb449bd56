"""Solves the batch sizes from what the user gave: train batch = micro batch × accumulation steps × data parallel ranks,
which are all processes where the model is not split.

DeepSpeed starts only if that holds (`runtime/config.py`, `_batch_assertion`). The three options count exactly. The
recipe's hyperparameters `batchSize` and `gradientAccumulationSteps`, which a model may bring along unasked, fill what
the options leave open, and are ignored where the train batch is impossible with them.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fermi.frameworks.deepspeed import split
from fermi.jobs.spec import JobSpec, Problem
from fermi.schema import suggestions

DEFAULT_TRAIN_BATCH = 64
"""The train batch when nothing is given: the requirement document's (004)."""


@dataclass(frozen=True, slots=True)
class TrainBatch:
    """Samples per optimizer step (`train`), and per data parallel rank and micro step (`micro`)."""

    train: int
    micro: int
    accumulation: int


def solve_batch(spec: JobSpec) -> TrainBatch | Problem:
    """Return the batch sizes, or what is wrong with them. The options must be of the right types; hyperparameters need
    not be."""
    at = split.read_split(spec)
    ranks, usual_steps = at.data, 1 if at.pipeline == 1 else split.MICRO_BATCHES_PER_STAGE * at.pipeline
    train, micro, steps = (_read_count(spec.options, name) for name in _OPTIONS)
    likely_micro = micro or _read_count(spec.hyperparameters, "batchSize")
    likely_steps = steps or _read_count(spec.hyperparameters, "gradientAccumulationSteps")
    if train is None:
        steps = likely_steps or usual_steps
        micro = likely_micro or max(1, round(DEFAULT_TRAIN_BATCH / (ranks * steps)))
        return TrainBatch(micro * steps * ranks, micro, steps)
    for one, other in ((likely_micro, likely_steps), (likely_micro, steps), (micro, likely_steps), (micro, steps)):
        if found := _divide_batch(train, ranks, one, other):
            return found
    unit = ranks * (micro or 1) * (steps or 1)
    params: dict[str, Any] = {"found": train, "worldSize": ranks}
    if micro and steps:
        return Problem(_FIELD, "TRAIN_BATCH_CONTRADICTORY", {**params, "micro": micro, "steps": steps, "nearest": unit})
    near = suggestions.suggest_multiples(train, unit)
    return Problem(_FIELD, "TRAIN_BATCH_NOT_DIVISIBLE", {**params, "unit": unit, "nearest": near})


_OPTIONS = ("trainBatchSize", "microBatchSize", "gradientAccumulationSteps")
_FIELD = "distributedConfig.options.trainBatchSize"


def _divide_batch(train: int, ranks: int, micro: int | None, steps: int | None) -> TrainBatch | None:
    """Return the sizes with `micro` as given, else `steps`, else a single step; None where the division leaves a
    remainder."""
    if micro and steps is None:
        steps = max(1, train // (micro * ranks))
    steps = steps or 1
    micro = micro or max(1, train // (steps * ranks))
    return TrainBatch(train, micro, steps) if micro * steps * ranks == train else None


def _read_count(values: Mapping[str, Any], name: str) -> int | None:
    value = values.get(name)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or value < 1 or value != value // 1:
        return None
    return int(value)
