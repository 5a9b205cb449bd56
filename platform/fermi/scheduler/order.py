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

from fermi.scheduler.snapshot import DAY, HALF_LIFE, Held, Priority, Project, Waiting, priority_of

HOUR = 3600.0
_RATE = math.log(2) / HALF_LIFE
_NOBODY = Project("")


def order(
    waiting: Iterable[Waiting],
    held: Iterable[Held],
    projects: Mapping[str, Project],
    now: float,
    gpus: Mapping[str, int] | None = None,
) -> list[Waiting]:
    """Return all waiting tasks, once each. `gpus`: by environment; one that is not listed has one."""
    gpus = gpus or {}
    used = usage(held, projects, now, gpus)
    classes: defaultdict[Priority, defaultdict[str, list[Waiting]]] = defaultdict(partial(defaultdict, list))
    for one in waiting:
        classes[aged(one, now)][one.project].append(one)
    found: list[Waiting] = []
    for level in sorted(classes, reverse=True):
        _merge(classes[level], projects, used, gpus, found)
    return found


def _merge(
    lines: Mapping[str, list[Waiting]],
    projects: Mapping[str, Project],
    used: defaultdict[str, float],
    gpus: Mapping[str, int],
    found: list[Waiting],
) -> None:
    heap = []
    for project, line in lines.items():
        line.sort(key=_age, reverse=True)
        weight = max(projects.get(project, _NOBODY).weight, 1e-9)
        heap.append((used[project] / weight, project, weight, line))
    heapq.heapify(heap)
    while heap:
        _, project, weight, line = heap[0]
        one = line.pop()
        found.append(one)
        used[project] += virtual(one, gpus)
        if line:
            heapq.heapreplace(heap, (used[project] / weight, project, weight, line))
        else:
            heapq.heappop(heap)


def aged(task: Waiting, now: float) -> Priority:
    """Return the class that counts for the order; preemption uses the class as requested."""
    level = priority_of(task.priority)
    if now - task.since < DAY:
        return level
    return _CLASSES[min(level + int((now - task.since) // DAY), Priority.URGENT)]


_CLASSES = tuple(Priority)


def usage(
    held: Iterable[Held], projects: Mapping[str, Project], now: float, gpus: Mapping[str, int]
) -> defaultdict[str, float]:
    """Return GPU-seconds by project, with what is held now."""
    used = defaultdict(float, {key: project.used for key, project in projects.items()})
    for one in held:
        used[one.project] += _together(one.places, gpus) * decayed(now - one.since)
    return used


def decayed(seconds: float) -> float:
    """Return what the last `seconds` of one GPU count for now."""
    return (1 - math.exp(-_RATE * max(seconds, 0.0))) / _RATE


def virtual(task: Waiting, gpus: Mapping[str, int]) -> float:
    """Return the GPU-seconds that a queued task counts for its project: its expected run, an hour where that is
    unknown, at most a day."""
    run = task.expected_run or task.max_run or HOUR
    return (asked(task, gpus) or 1) * (run if run < DAY else DAY)


def asked(task: Waiting, gpus: Mapping[str, int]) -> int:
    """Return the GPUs of a task, as far as they are known before environments are chosen."""
    select = task.select
    if select is None:
        return _together(task.named, gpus)
    return select.total_gpus or (select.nodes or 1) * (select.gpus_per_node or 0)


def _together(places: Iterable[str], gpus: Mapping[str, int]) -> int:
    there = 0
    for key in places:
        there += gpus.get(key, 1)
    return there


def _age(task: Waiting) -> tuple[float, str]:
    return (task.since if task.place is None else task.place, task.task)
