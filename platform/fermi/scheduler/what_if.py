"""Finds changes that would let a waiting task start now. Each is tried on what the tasks before it leave."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from fermi.jobs.spec import Problem
from fermi.scheduler.request_text import amount
from fermi.scheduler.scheduler import Fits, Walk, anything
from fermi.scheduler.snapshot import NUMBERS, Place, Priority, Project, Scene, Select, Waiting, priority_of

Try = Callable[[Waiting], Sequence[Place]]
"""Returns the environments that a task would get now in place of the one that waits."""

SHORTEST = 300.0
"""Seconds of the shortest run that is proposed."""


def sooner(scene: Scene, task: str, fits: Fits = anything) -> list[Problem]:
    """Return changes each of which alone would let the task start now; empty where it would start anyway or does not
    wait."""
    if not any(one.task == task for one in scene.waiting):
        return []
    walk = Walk(scene, fits)
    one = walk.ask_before(task)
    if walk.would(one):
        return []
    found = [*_smaller(one, walk.would)]
    if one.select is not None:
        found += _elsewhere(one, one.select, walk.would)
    else:
        found += _by_capacity(one, scene, walk.would)
    found += _shorter(one, walk)
    return found + list(_higher(one, scene, fits))


def _smaller(task: Waiting, would: Try) -> Iterator[Problem]:
    select = task.select
    if select is None:
        return
    for less in _less(select):
        if places := would(replace(task, select=less)):
            zones = ", ".join(sorted({place.zone_name or place.zone for place in places}))
            params = {"wanted": amount(select), "instead": amount(less), "zone": zones}
            yield Problem("", "SOONER_FEWER_GPUS", params)
            return


def _less(select: Select) -> Iterator[Select]:
    """Yield smaller requests, the largest first; of as many GPUs, on as many environments first."""
    if select.total_gpus is not None:
        for total in _down(select.total_gpus):
            yield replace(select, total_gpus=total, nodes=None)
        return
    nodes, each = select.nodes or 1, select.gpus_per_node
    pairs = [(n, each) for n in _down(nodes)]
    if each is not None:
        pairs += [(nodes, gpus) for gpus in _down(each)]
    pairs.sort(key=lambda pair: (-pair[0] * (pair[1] or 1), -pair[0]))
    for number, gpus in pairs:
        yield replace(select, nodes=number, gpus_per_node=gpus)


def _down(number: int) -> Iterator[int]:
    """Yield lower numbers: one less each, for large numbers in larger steps."""
    while number > 1:
        number -= max(1, number // 16)
        yield number


def _elsewhere(task: Waiting, select: Select, would: Try) -> Iterator[Problem]:
    if select.gpu_types and (places := would(replace(task, select=replace(select, gpu_types=())))):
        types = ", ".join(sorted({place.gpu_type for place in places if place.gpu_type})) or "–"
        yield Problem("", "SOONER_OTHER_TYPE", {"types": types, "wanted": ", ".join(select.gpu_types)})
    anywhere = replace(select, zones=(), same_zone=False)
    if anywhere != select and (places := would(replace(task, select=anywhere))):
        zones = ", ".join(sorted({place.zone_name or place.zone for place in places}))
        yield Problem("", "SOONER_OTHER_ZONE", {"zones": zones})
    if select.exclude and (places := would(replace(task, select=replace(select, exclude=())))):
        names = ", ".join(place.name for place in places if place.id in select.exclude)
        yield Problem("", "SOONER_NOT_EXCLUDED", {"environments": names})


def _by_capacity(task: Waiting, scene: Scene, would: Try) -> Iterator[Problem]:
    """Try as many environments with as many GPUs of the same types, whichever."""
    by_id = {place.id: place for place in scene.places}
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
    if places := would(replace(task, named=(), select=select)):
        names = ", ".join(place.name for place in places)
        yield Problem("", "SOONER_BY_CAPACITY", {"wanted": amount(select), "environments": names})


def _shorter(task: Waiting, walk: Walk) -> Iterator[Problem]:
    """Try the longest run with which the task would delay no other."""
    run = task.max_run
    ends = (moment - walk.now for moment in reversed(walk.board.moments))
    for seconds in ends:
        if seconds >= SHORTEST and (run is None or seconds < run) and walk.would(replace(task, max_run=seconds)):
            yield Problem("", "SOONER_SHORTER", {"seconds": int(seconds), "hours": f"{seconds / 3600:.1f}"})
            return


def _higher(task: Waiting, scene: Scene, fits: Fits) -> Iterator[Problem]:
    project = scene.projects.get(task.project, Project(""))
    for level in Priority:
        if level > priority_of(task.priority) and (level in project.priorities or not project.priorities):
            raised = replace(task, priority=NUMBERS[level.name.lower()])
            waiting = tuple(raised if other.task == task.task else other for other in scene.waiting)
            walk = Walk(replace(scene, waiting=waiting), fits)
            if walk.would(walk.ask_before(task.task)):
                yield Problem("", "SOONER_HIGHER_CLASS", {"priority": level.name.lower()})
                return
