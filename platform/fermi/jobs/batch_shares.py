"""Divides the batch by the speed of each rank's GPU, so that fast GPUs do not wait for slow ones in every step.

The global batch stays as it is, and so does the gradient where each rank's loss is weighted by its part of it, as the
reference trainers do:

    rank     0     1     2     3         A100, A100, V100, V100; batchSize 8
    equal    8     8     8     8         a step takes as long as 8 sequences on a V100
    bySpeed  11    11    5     5         as 5 on a V100, or 11 on an A100
"""

import math
from typing import Any

from fermi.jobs import gpus, recipes
from fermi.jobs.ranks import place
from fermi.jobs.spec import JobSpec, Node, Problem

OPTION: dict[str, Any] = {"enum": ["equal", "bySpeed"], "default": "equal"}
_FIELD = "distributedConfig.options.batchShare"
_WORTH_IT = 1.05


def problems(spec: JobSpec) -> list[Problem]:
    """Return what is wrong with the option of a job whose other options are valid: by speed needs GPUs whose speed is
    known."""
    unknown = [node.gpu_type or "CPU" for node in spec.nodes if _speed(node) is None]
    if not unknown or not asked(spec):
        return []
    params = {"found": " / ".join(dict.fromkeys(unknown)), "allowed": ", ".join(gpus.GPUS), "nearest": "equal"}
    return [Problem(_FIELD, "BATCH_SHARE_NEEDS_KNOWN_GPUS", params)]


def warnings(spec: JobSpec) -> list[Problem]:
    """Return what the option does for these nodes, or, where it is off and would help, that it exists."""
    speeds = [_speed(node) for node in spec.nodes]
    if None in speeds or len(set(speeds)) == 1:
        return []
    gain = _gain(spec)
    params = {"shares": _shown(spec), "batch": _batch_size(spec), "gain": f"{gain:.2f}"}
    if asked(spec):
        return [Problem(_FIELD, "BATCH_SHARE_BY_SPEED", params)]
    real = all(node.has_cuda for node in spec.nodes)
    return [Problem(_FIELD, "BATCH_SHARE_OFFERED", params)] if real and gain > _WORTH_IT else []


def rank_env(spec: JobSpec) -> dict[int, dict[str, str]]:
    """Return FERMI_LOCAL_BATCH_SIZE by rank; empty where all ranks have the same share."""
    if not asked(spec):
        return {}
    return {rank: {"FERMI_LOCAL_BATCH_SIZE": str(size)} for rank, size in enumerate(batch_sizes(spec))}


def asked(spec: JobSpec) -> bool:
    """Return whether the job divides its batch by speed."""
    return spec.options.get("batchShare") == "bySpeed"


def batch_sizes(spec: JobSpec) -> list[int]:
    """Return each rank's sequences per micro step: at least one; together `batchSize` × ranks. The remainder of the
    division goes to the ranks that are farthest below their share (largest remainder method), lower ranks first. The
    speed of every GPU must be known."""
    speeds = _by_rank(spec)
    spare, together = (_batch_size(spec) - 1) * len(speeds), sum(speeds)
    wished = [spare * speed / together for speed in speeds]
    sizes = [math.floor(wish) for wish in wished]
    worst = sorted(range(len(sizes)), key=lambda rank: (sizes[rank] - wished[rank], rank))
    for rank in worst[: spare - sum(sizes)]:
        sizes[rank] += 1
    return [1 + size for size in sizes]


def _gain(spec: JobSpec) -> float:
    """Return by what factor a step is faster, if it only computed."""
    speeds = _by_rank(spec)
    slowest = max(size / speed for size, speed in zip(batch_sizes(spec), speeds, strict=True))
    return _batch_size(spec) / min(speeds) / slowest


def _by_rank(spec: JobSpec) -> list[float]:
    return [speed for at in place(spec.nodes, spec.master) for speed in [_speed(at.node) or 1.0] * at.node.processes]


def _batch_size(spec: JobSpec) -> int:
    value = spec.hyperparameters.get("batchSize")
    return int(value) if value and recipes.GPT["batchSize"].accepts(value) else recipes.DEFAULT_BATCH_SIZE


def _speed(node: Node) -> float | None:
    return gpus.speed(node.gpu_type) if node.gpu_count else None


def _shown(spec: JobSpec) -> str:
    """Return the sizes by GPU type, such as `A100 11–12, V100 5`."""
    by_type: dict[str, list[int]] = {}
    for at in place(spec.nodes, spec.master):
        by_type.setdefault(at.node.gpu_type, []).extend(at.ranks)
    sizes, parts = batch_sizes(spec), []
    for kind, ranks in by_type.items():
        low, high = min(sizes[rank] for rank in ranks), max(sizes[rank] for rank in ranks)
        parts.append(f"{kind} {low}" if low == high else f"{kind} {low}–{high}")
    return ", ".join(parts)
