"""Orders waiting tasks: by class, then by the fair share of the project, then by age.

class   as requested, one higher for each day that the task has waited, at most urgent
share   GPU-seconds that the project has used, with a half-life of seven days, divided by its weight. The project that
        has used least comes first, and what was just placed in this order counts as used: so projects alternate
age     within a project: where a maintainer moved the task to, else since when it waits
"""

import heapq
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from functools import partial

from fermi.scheduler.snapshot import (
    DAY_SECONDS,
    HALF_LIFE_SECONDS,
    Priority,
    Project,
    RunningTask,
    WaitingTask,
    classify_priority,
)

DEFAULT_RUN_SECONDS = 3600.0
_RATE = math.log(2) / HALF_LIFE_SECONDS
_NO_PROJECT = Project("")


def order_tasks(
    waiting: Iterable[WaitingTask],
    running: Iterable[RunningTask],
    projects: Mapping[str, Project],
    now: float,
    gpus: Mapping[str, int] | None = None,
) -> list[WaitingTask]:
    """Return all waiting tasks, once each. `gpus`: by environment; one that is not listed has one."""
    gpus = gpus or {}
    used = compute_usage(running, projects, now, gpus)
    classes: defaultdict[Priority, defaultdict[str, list[WaitingTask]]] = defaultdict(partial(defaultdict, list))
    for one in waiting:
        classes[raise_class_by_age(one, now)][one.project].append(one)
    found: list[WaitingTask] = []
    for level in sorted(classes, reverse=True):
        _merge_projects(classes[level], projects, used, gpus, found)
    return found


def _merge_projects(
    queues: Mapping[str, list[WaitingTask]],
    projects: Mapping[str, Project],
    used: defaultdict[str, float],
    gpus: Mapping[str, int],
    ordered: list[WaitingTask],
) -> None:
    heap = []
    for project, line in queues.items():
        line.sort(key=_age_key, reverse=True)
        weight = max(projects.get(project, _NO_PROJECT).weight, 1e-9)
        heap.append((used[project] / weight, project, weight, line))
    heapq.heapify(heap)
    while heap:
        _, project, weight, line = heap[0]
        one = line.pop()
        ordered.append(one)
        used[project] += estimate_gpu_seconds(one, gpus)
        if line:
            heapq.heapreplace(heap, (used[project] / weight, project, weight, line))
        else:
            heapq.heappop(heap)


def raise_class_by_age(task: WaitingTask, now: float) -> Priority:
    """Return the class that counts for the order; preemption uses the class as requested."""
    level = classify_priority(task.priority)
    if now - task.since < DAY_SECONDS:
        return level
    return _CLASSES[min(level + int((now - task.since) // DAY_SECONDS), Priority.URGENT)]


_CLASSES = tuple(Priority)


def compute_usage(
    running: Iterable[RunningTask], projects: Mapping[str, Project], now: float, gpus: Mapping[str, int]
) -> defaultdict[str, float]:
    """Return GPU-seconds by project, with what is held now."""
    used = defaultdict(float, {key: project.used for key, project in projects.items()})
    for one in running:
        used[one.project] += _sum_gpus(one.places, gpus) * decay_seconds(now - one.since)
    return used


def decay_seconds(seconds: float) -> float:
    """Return what the last `seconds` of one GPU count for now."""
    return (1 - math.exp(-_RATE * max(seconds, 0.0))) / _RATE


def estimate_gpu_seconds(task: WaitingTask, gpus: Mapping[str, int]) -> float:
    """Return the GPU-seconds that a queued task counts for its project: its expected run, an hour where that is
    unknown, at most a day."""
    run = task.expected_run or task.max_run or DEFAULT_RUN_SECONDS
    return (count_requested_gpus(task, gpus) or 1) * (run if run < DAY_SECONDS else DAY_SECONDS)


def count_requested_gpus(task: WaitingTask, gpus: Mapping[str, int]) -> int:
    """Return the GPUs of a task, as far as they are known before environments are chosen."""
    select = task.select
    if select is None:
        return _sum_gpus(task.named, gpus)
    return select.total_gpus or (select.nodes or 1) * (select.gpus_per_node or 0)


def _sum_gpus(places: Iterable[str], gpus: Mapping[str, int]) -> int:
    there = 0
    for key in places:
        there += gpus.get(key, 1)
    return there


def _age_key(task: WaitingTask) -> tuple[float, str]:
    return (task.since if task.position is None else task.position, task.task)
