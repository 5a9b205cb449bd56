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
from fermi.jobs.ranks import place_nodes
from fermi.jobs.spec import JobSpec, Node, Problem

OPTION_SCHEMA: dict[str, Any] = {"enum": ["equal", "bySpeed"], "default": "equal"}
_FIELD = "distributedConfig.options.batchShare"
_MIN_GAIN = 1.05


def find_problems(spec: JobSpec) -> list[Problem]:
    """Return what is wrong with the option of a job whose other options are valid: by speed needs GPUs whose speed is
    known."""
    unknown = [node.gpu_type or "CPU" for node in spec.nodes if _find_speed(node) is None]
    if not unknown or not is_by_speed(spec):
        return []
    params = {"found": " / ".join(dict.fromkeys(unknown)), "allowed": ", ".join(gpus.GPUS), "nearest": "equal"}
    return [Problem(_FIELD, "BATCH_SHARE_NEEDS_KNOWN_GPUS", params)]


def find_warnings(spec: JobSpec) -> list[Problem]:
    """Return what the option does for these nodes, or, where it is off and would help, that it exists."""
    speeds = [_find_speed(node) for node in spec.nodes]
    if None in speeds or len(set(speeds)) == 1:
        return []
    gain = _compute_gain(spec)
    params = {"shares": _format_shares(spec), "batch": _read_batch_size(spec), "gain": f"{gain:.2f}"}
    if is_by_speed(spec):
        return [Problem(_FIELD, "BATCH_SHARE_BY_SPEED", params)]
    real = all(node.has_cuda for node in spec.nodes)
    return [Problem(_FIELD, "BATCH_SHARE_OFFERED", params)] if real and gain > _MIN_GAIN else []


def build_rank_env(spec: JobSpec) -> dict[int, dict[str, str]]:
    """Return FERMI_LOCAL_BATCH_SIZE by rank; empty where all ranks have the same share."""
    if not is_by_speed(spec):
        return {}
    return {rank: {"FERMI_LOCAL_BATCH_SIZE": str(size)} for rank, size in enumerate(compute_batch_sizes(spec))}


def is_by_speed(spec: JobSpec) -> bool:
    """Return whether the job divides its batch by speed."""
    return spec.options.get("batchShare") == "bySpeed"


def compute_batch_sizes(spec: JobSpec) -> list[int]:
    """Return each rank's sequences per micro step: at least one; together `batchSize` × ranks. The remainder of the
    division goes to the ranks that are farthest below their share (largest remainder method), lower ranks first. The
    speed of every GPU must be known."""
    speeds = _list_speeds(spec)
    spare, together = (_read_batch_size(spec) - 1) * len(speeds), sum(speeds)
    wished = [spare * speed / together for speed in speeds]
    sizes = [math.floor(wish) for wish in wished]
    worst = sorted(range(len(sizes)), key=lambda rank: (sizes[rank] - wished[rank], rank))
    for rank in worst[: spare - sum(sizes)]:
        sizes[rank] += 1
    return [1 + size for size in sizes]


def _compute_gain(spec: JobSpec) -> float:
    """Return by what factor a step is faster, if it only computed."""
    speeds = _list_speeds(spec)
    slowest = max(size / speed for size, speed in zip(compute_batch_sizes(spec), speeds, strict=True))
    return _read_batch_size(spec) / min(speeds) / slowest


def _list_speeds(spec: JobSpec) -> list[float]:
    return [
        speed
        for at in place_nodes(spec.nodes, spec.master)
        for speed in [_find_speed(at.node) or 1.0] * at.node.processes
    ]


def _read_batch_size(spec: JobSpec) -> int:
    value = spec.hyperparameters.get("batchSize")
    return int(value) if value and recipes.GPT["batchSize"].accepts(value) else recipes.DEFAULT_BATCH_SIZE


def _find_speed(node: Node) -> float | None:
    return gpus.find_tflops(node.gpu_type) if node.gpu_count else None


def _format_shares(spec: JobSpec) -> str:
    """Return the sizes by GPU type, such as `A100 11–12, V100 5`."""
    by_type: dict[str, list[int]] = {}
    for at in place_nodes(spec.nodes, spec.master):
        by_type.setdefault(at.node.gpu_type, []).extend(at.ranks)
    sizes, parts = compute_batch_sizes(spec), []
    for kind, ranks in by_type.items():
        low, high = min(sizes[rank] for rank in ranks), max(sizes[rank] for rank in ranks)
        parts.append(f"{kind} {low}" if low == high else f"{kind} {low}–{high}")
    return ", ".join(parts)
