"""Who starts now, on what, who gives way, and why each other task waits."""

from collections.abc import Callable, Sequence

from fermi.launch.schedule.order import order
from fermi.launch.schedule.placement import choose
from fermi.launch.schedule.scene import Decision, Place, Scene, Turn, Waiting
from fermi.launch.spec import Problem

Fits = Callable[[Waiting, Sequence[Place]], bool]
"""Whether a task can run on these environments, master first, by rules that this package does not know."""


def anything(task: Waiting, places: Sequence[Place]) -> bool:
    return True


def decide(scene: Scene, fits: Fits = anything) -> Decision:
    """Pure, but for `fits`, which is asked only of what would start or be reserved."""
    by_id = {place.id: place for place in scene.places}
    taken = {key for held in scene.held for key in held.places}
    turns = []
    for number, task in enumerate(order(scene.waiting, scene.held, scene.projects, scene.now), 1):
        free = [place for place in scene.places if place.id not in taken and place.usable]
        if task.select is None:
            chosen = [by_id[key] for key in task.named if key in by_id]
            ready = len(chosen) == len(task.named) and all(p.usable and p.id not in taken for p in chosen)
        else:
            chosen = list(choose(task, free))
            ready = bool(chosen)
        if ready and fits(task, chosen):
            start = tuple(place.id for place in chosen)
            taken |= set(start)
            turns.append(Turn(task.task, number, start))
        else:
            turns.append(Turn(task.task, number, why=Problem("", "WAITING_FOR_TURN")))
    return Decision(tuple(turns))
