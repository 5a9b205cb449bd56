"""Finds changes that would let a waiting task start now. Each is tried on what the tasks before it leave."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from fermi.jobs.spec import Problem
from fermi.scheduler.request_text import format_amount
from fermi.scheduler.scheduler import CanRun, SchedulingPass, accept_any
from fermi.scheduler.snapshot import (
    PRIORITY_NUMBERS,
    EnvironmentInfo,
    Priority,
    Project,
    SchedulerSnapshot,
    Select,
    WaitingTask,
    classify_priority,
)

TryTask = Callable[[WaitingTask], Sequence[EnvironmentInfo]]
"""Returns the environments that a task would get now in place of the one that waits."""

MIN_RUN_SECONDS = 300.0
"""Seconds of the shortest run that is proposed."""


def find_sooner_starts(snapshot: SchedulerSnapshot, task: str, can_run: CanRun = accept_any) -> list[Problem]:
    """Return changes each of which alone would let the task start now; empty where it would start anyway or does not
    wait."""
    if not any(one.task == task for one in snapshot.waiting):
        return []
    walk = SchedulingPass(snapshot, can_run)
    one = walk.run_until(task)
    if walk.would(one):
        return []
    found = [*_try_smaller(one, walk.would)]
    if one.select is not None:
        found += _try_elsewhere(one, one.select, walk.would)
    else:
        found += _try_by_capacity(one, snapshot, walk.would)
    found += _try_shorter(one, walk)
    return found + list(_try_higher_class(one, snapshot, can_run))


def _try_smaller(task: WaitingTask, try_task: TryTask) -> Iterator[Problem]:
    select = task.select
    if select is None:
        return
    for less in _list_smaller(select):
        if places := try_task(replace(task, select=less)):
            zones = ", ".join(sorted({place.zone_name or place.zone for place in places}))
            params = {"wanted": format_amount(select), "instead": format_amount(less), "zone": zones}
            yield Problem("", "SOONER_FEWER_GPUS", params)
            return


def _list_smaller(select: Select) -> Iterator[Select]:
    """Yield smaller requests, the largest first; of as many GPUs, on as many environments first."""
    if select.total_gpus is not None:
        for total in _list_lower(select.total_gpus):
            yield replace(select, total_gpus=total, nodes=None)
        return
    nodes, each = select.nodes or 1, select.gpus_per_node
    pairs = [(n, each) for n in _list_lower(nodes)]
    if each is not None:
        pairs += [(nodes, gpus) for gpus in _list_lower(each)]
    pairs.sort(key=lambda pair: (-pair[0] * (pair[1] or 1), -pair[0]))
    for number, gpus in pairs:
        yield replace(select, nodes=number, gpus_per_node=gpus)


def _list_lower(number: int) -> Iterator[int]:
    """Yield lower numbers: one less each, for large numbers in larger steps."""
    while number > 1:
        number -= max(1, number // 16)
        yield number


def _try_elsewhere(task: WaitingTask, select: Select, try_task: TryTask) -> Iterator[Problem]:
    if select.gpu_types and (places := try_task(replace(task, select=replace(select, gpu_types=())))):
        types = ", ".join(sorted({place.gpu_type for place in places if place.gpu_type})) or "–"
        yield Problem("", "SOONER_OTHER_TYPE", {"types": types, "wanted": ", ".join(select.gpu_types)})
    anywhere = replace(select, zones=(), same_zone=False)
    if anywhere != select and (places := try_task(replace(task, select=anywhere))):
        zones = ", ".join(sorted({place.zone_name or place.zone for place in places}))
        yield Problem("", "SOONER_OTHER_ZONE", {"zones": zones})
    if select.exclude and (places := try_task(replace(task, select=replace(select, exclude=())))):
        names = ", ".join(place.name for place in places if place.id in select.exclude)
        yield Problem("", "SOONER_NOT_EXCLUDED", {"environments": names})


def _try_by_capacity(task: WaitingTask, snapshot: SchedulerSnapshot, try_task: TryTask) -> Iterator[Problem]:
    """Try as many environments with as many GPUs of the same types, whichever."""
    by_id = {place.id: place for place in snapshot.places}
    named = [by_id[key] for key in task.named if key in by_id]
    if not named:
        return
    types = tuple(sorted({place.gpu_type for place in named if place.gpu_type}))
    sizes = {place.gpus for place in named}
    if len(sizes) == 1 and 0 not in sizes:
        select = Select(nodes=len(named), gpus_per_node=named[0].gpus, gpu_types=types)
    elif all(sizes):
        select = Select(total_gpus=sum(place.gpus for place in named), gpu_types=types)
    else:
        select = Select(nodes=len(named), gpu_types=types)
    if places := try_task(replace(task, named=(), select=select)):
        names = ", ".join(place.name for place in places)
        yield Problem("", "SOONER_BY_CAPACITY", {"wanted": format_amount(select), "environments": names})


def _try_shorter(task: WaitingTask, scheduling: SchedulingPass) -> Iterator[Problem]:
    """Try the longest run with which the task would delay no other."""
    run = task.max_run
    ends = (moment - scheduling.now for moment in reversed(scheduling.board.moments))
    for seconds in ends:
        if (
            seconds >= MIN_RUN_SECONDS
            and (run is None or seconds < run)
            and scheduling.would(replace(task, max_run=seconds))
        ):
            yield Problem("", "SOONER_SHORTER", {"seconds": int(seconds), "hours": f"{seconds / 3600:.1f}"})
            return


def _try_higher_class(task: WaitingTask, snapshot: SchedulerSnapshot, can_run: CanRun) -> Iterator[Problem]:
    project = snapshot.projects.get(task.project, Project(""))
    for level in Priority:
        if level > classify_priority(task.priority) and (level in project.priorities or not project.priorities):
            raised = replace(task, priority=PRIORITY_NUMBERS[level.name.lower()])
            waiting = tuple(raised if other.task == task.task else other for other in snapshot.waiting)
            walk = SchedulingPass(replace(snapshot, waiting=waiting), can_run)
            if walk.would(walk.run_until(task.task)):
                yield Problem("", "SOONER_HIGHER_CLASS", {"priority": level.name.lower()})
                return
