"""Computes model FLOPs utilisation: the share of its GPUs' peak that a task uses for its model (Chowdhery et al. 2022,
arXiv:2204.02311, appendix B)."""

from statistics import mean
from typing import Any

from apps.training.models import MetricPoint, Task
from fermi.jobs import gpus
from fermi.jobs.spec import JobSpec

MAX_POINTS = 200
"""Most metric points that are read, newest first."""


def compute_mfu(task: Task) -> dict[str, Any] | None:
    """Return the utilisation of the newest attempt; None unless its trainer prints `tflops` (of all ranks, per second)
    or `flops_per_step`. Its first point is left out once there are others: kernels are chosen, loaded and compiled in
    it."""
    points = MetricPoint.objects.filter(task=task, attempt=task.attempt, rank=0).order_by("-pk")[:MAX_POINTS]
    told = list(points.values_list("step", "at", "values"))
    speed = _average_reported(told) or _compute_from_steps(told)
    if speed is None:
        return None
    peak = _sum_peak(task)
    return {"tflops": speed, "peakTflops": peak, "utilisation": speed / peak if peak else None}


def _average_reported(points: list[Any]) -> float | None:
    found = [values["tflops"] for _, _, values in points if values.get("tflops") is not None]  # the newest first
    warm = found if len(points) == MAX_POINTS else found[:-1] or found
    return mean(warm) if warm else None


def _compute_from_steps(points: list[Any]) -> float | None:
    found = [(step, at, values["flops_per_step"]) for step, at, values in points if values.get("flops_per_step")]
    if len(found) < 2:
        return None
    (last, ended, flops), (first, began, _) = found[0], found[-1]
    seconds = (ended - began).total_seconds()
    return flops * (last - first) / seconds / 1e12 if seconds > 0 and last > first else None


def _sum_peak(task: Task) -> float | None:
    """Return the peak of all GPUs that ranks run on, in TFLOPS; None if one is emulated, or of an unknown type."""
    found = 0.0
    for node in JobSpec.from_json(task.spec).nodes:
        speed = None if node.emulated else gpus.find_tflops(node.gpu_type)
        if node.gpu_count and speed is None:
            return None
        found += (speed or 0.0) * node.gpu_count
    return found or None
