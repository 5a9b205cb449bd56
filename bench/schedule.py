"""Cost of one scheduling pass and of its explanations: 10,000 waiting tasks, 5,000 environments."""

import dataclasses
import gc
import random
import time
from collections.abc import Callable, Iterator
from statistics import median

from bench import sharing
from bench.table import Figure, FigureTarget
from fermi.scheduler.forecast import estimate_starts
from fermi.scheduler.order import order_tasks
from fermi.scheduler.scheduler import make_decision
from fermi.scheduler.snapshot import SchedulerSnapshot
from fermi.scheduler.what_if import find_sooner_starts

ROUNDS = 5


def measure() -> Iterator[Figure]:
    held = sharing.make_snapshot(random.Random(sharing.SEED))
    gc.collect()
    gc.freeze()  # what sections before this one left, no decision has to look through
    free = dataclasses.replace(held, running=())
    full = _fill_queue(held)
    yield _make_figure("environments nearly all held", lambda: make_decision(full), FigureTarget(200))
    yield _make_figure("nine of ten environments held", lambda: make_decision(held), FigureTarget(200))
    yield _make_figure("all environments free", lambda: make_decision(free), FigureTarget(200))
    yield _make_figure("the order alone", lambda: order_tasks(held.waiting, held.running, held.projects, held.now))
    decision = make_decision(held)
    last = next(turn.task for turn in reversed(decision.turns) if turn.why)
    yield _make_figure("when each will start", lambda: estimate_starts(held, decision))
    yield _make_figure("what would let the last one start sooner", lambda: find_sooner_starts(held, last))
    gc.unfreeze()


def _make_figure(name: str, action: Callable[[], object], target: FigureTarget | None = None) -> Figure:
    return Figure(name, median(_measure_cost(action) for _ in range(ROUNDS)) * 1e3, "ms", target=target)


def _measure_cost(action: Callable[[], object]) -> float:
    """Return processor time: nothing here waits for anything, and others may use the machine meanwhile."""
    began = time.process_time()
    action()
    return time.process_time() - began


def _fill_queue(scene: SchedulerSnapshot) -> SchedulerSnapshot:
    """Return a queue in which all environments but a hundredth are held."""
    taken = {key for held in scene.running for key in held.places}
    left = [place for place in scene.places if place.id not in taken]
    more = tuple(
        dataclasses.replace(scene.running[0], task=f"more{number}", places=(place.id,), until=None)
        for number, place in enumerate(left[len(scene.places) // 100 :])
    )
    return dataclasses.replace(scene, running=scene.running + more)
