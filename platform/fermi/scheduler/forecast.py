"""Estimates when each waiting task will start, by simulating the queue in its order.

Each task takes the environments that come free first for it, and holds them for as long as it will probably run. The
queue is simulated three times: with probable times; with the shortest, `EARLY_FACTOR` of them; and with the longest,
what was declared or else `LATE_FACTOR` times the probable. Where the end of one holder is unknown, nothing after it is
known either.

Tasks that will be preempted for one of the first count, once their `min_run` is over. A task that starts before its
turn because it delays no other does not, nor do tasks preempted for others: with these, some start at another time than
was estimated.
"""

import heapq
import math
from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from fermi.scheduler import limits
from fermi.scheduler.capacity import Board, suffices
from fermi.scheduler.environment_groups import Ask, Lot, Stock, ask
from fermi.scheduler.snapshot import Decision, Held, Place, Project, Scene, Turn, Waiting

EARLY, LATE = 0.5, 2.0
GRACE = 60.0
"""Seconds for which a task that was asked to end still has its environments."""
FAR = 1000
"""Tasks of the queue that are simulated; the start of later ones is unknown."""
_NEVER = math.inf


@dataclass(frozen=True, slots=True)
class Forecast:
    """`begins`: the probable start, None: unknown; `early`, `late`: it will probably be between these; `late` None: or
    any time later. `after`: tasks that have its environments before it."""

    begins: float | None
    early: float | None
    late: float | None
    after: tuple[str, ...] = ()


def estimate(scene: Scene, decision: Decision) -> dict[str, Forecast]:
    """Return the forecast of each waiting task that does not start now."""
    probable, early, late = (
        _Times(scene, rest, run).walk(decision)
        for rest, run in ((_probably, _probable_run), (_early, _early_run), (_late, _late_run))
    )
    found = {}
    for turn in decision.turns:
        if turn.start:
            continue
        begins, after = probable.get(turn.task, (_NEVER, turn.after))
        if begins == _NEVER:
            found[turn.task] = Forecast(None, None, None, after)
            continue
        first = min(early.get(turn.task, (begins,))[0], begins)
        last = max(late.get(turn.task, (_NEVER,))[0], begins)
        found[turn.task] = Forecast(begins, first, None if last == _NEVER else last, after)
    return found


def _probably(held: Held, now: float) -> float:
    known = [moment for moment in (held.until, held.expected) if moment is not None]
    if held.leaving:
        return min([now + GRACE, *known])
    return min(known, default=_NEVER)


def _early(held: Held, now: float) -> float:
    rest = _probably(held, now)
    return now if held.leaving else now + EARLY * (rest - now)


def _late(held: Held, now: float) -> float:
    if held.until is not None:
        return held.until
    rest = _probably(held, now)
    return now + LATE * (rest - now)


def _probable_run(task: Waiting) -> float:
    return min(task.expected_run or _NEVER, task.max_run if task.max_run is not None else _NEVER)


def _early_run(task: Waiting) -> float:
    return EARLY * _probable_run(task)


def _late_run(task: Waiting) -> float:
    return task.max_run if task.max_run is not None else LATE * _probable_run(task)


class _Times:
    """From when each environment is free, and which task has it until then."""

    def __init__(self, scene: Scene, rest: Callable[[Held, float], float], run: Callable[[Waiting], float]) -> None:
        self.scene, self.now, self.run = scene, scene.now, run
        self.board = Board(scene)
        self.tasks = {task.task: task for task in scene.waiting}
        self.stock = Stock(self.board.windows)
        self.stock.fill(place for place in scene.places if place.usable)
        self.gates = _Gates()
        self.at = dict.fromkeys(self.board.by_id, scene.now)
        self.last: dict[str, str] = {}
        for held in scene.held:
            ends = max(rest(held, scene.now), scene.now)
            places = [self.board.by_id[key] for key in held.places if key in self.board.by_id]
            self.gates.enter(held.project, held.user, limits.gpus_of(places), ends)
            for place in places:
                self.at[place.id], self.last[place.id] = ends, held.task
        self.lines = {id(lot): sorted((self.at[p.id], p.id) for p in lot.places) for lot in self.stock.lots.values()}
        self.asks: dict[Any, list[Lot]] = {}

    def walk(self, decision: Decision) -> dict[str, tuple[float, tuple[str, ...]]]:
        found = {}
        for turn in decision.turns[:FAR]:
            task = self.tasks[turn.task]
            if turn.start:
                self._occupy(task, [self.board.by_id[key] for key in turn.start], self.now)
            elif turn.why is None or turn.why.code not in _NOBODY_KNOWS:
                found[turn.task] = self._next(task, turn)
        return found

    def _next(self, task: Waiting, turn: Turn) -> tuple[float, tuple[str, ...]]:
        places = self._places(task, turn)
        if not places:
            return _NEVER, turn.after
        after = tuple(dict.fromkeys(self.last[place.id] for place in places if place.id in self.last))
        gate = self.gates.opens(self.scene.projects.get(task.project), task, limits.gpus_of(places))
        begins = max(self.now, gate, *(self.at[place.id] for place in places))
        if begins < _NEVER:
            for _ in range(3):  # past one reserved time, another may begin
                begins = max(self.board.past_windows(place, task, begins) for place in places)
        if turn.room_at is not None and turn.room_at + GRACE < begins:
            begins, after = turn.room_at + GRACE, turn.after
        self._occupy(task, places, begins)
        return begins, after

    def _places(self, task: Waiting, turn: Turn) -> Sequence[Place]:
        if keys := turn.needs or task.named:
            return [place for key in keys if (place := self.board.by_id.get(key)) is not None]
        assert task.select is not None
        wish = ask(task, self.scene.projects.get(task.project))
        lots = self.asks.get(wish.filter)
        if lots is None:
            lots = self.asks[wish.filter] = self.stock.matching(wish)
        groups: dict[Any, list[Lot]] = defaultdict(list)
        for lot in lots:
            groups[lot.kind.cluster, lot.kind.zone if task.select.same_zone else ""].append(lot)
        each = ((key, self._soonest(wish, group)) for key, group in groups.items())
        found = [(self.at[some[-1].id], key, some) for key, some in each if some]
        return min(found, key=lambda one: one[:2])[2] if found else ()

    def _soonest(self, wish: Ask, lots: Iterable[Lot]) -> list[Place]:
        places: list[Place] = []
        gpus = 0
        merged: Iterator[tuple[float, str]] = heapq.merge(*(self.lines[id(lot)] for lot in lots))
        for _, key in merged:
            if key not in wish.select.exclude:
                places.append(self.board.by_id[key])
                gpus += places[-1].gpus
                if suffices(wish.select, places, gpus):
                    return places
        return []

    def _occupy(self, task: Waiting, places: Sequence[Place], begins: float) -> None:
        ends = begins + self.run(task)
        self.gates.enter(task.project, task.user, limits.gpus_of(places), ends)
        for place in places:
            lot = self.stock.of.get(place.id)
            if lot is not None:
                line = self.lines[id(lot)]
                del line[bisect_left(line, (self.at[place.id], place.id))]
                insort(line, (ends, place.id))
            self.at[place.id], self.last[place.id] = ends, task.task


class _Gates:
    """When a project and a user are below their limits again."""

    def __init__(self) -> None:
        self.ends: defaultdict[Any, list[tuple[float, int]]] = defaultdict(list)
        self.gpus: defaultdict[Any, int] = defaultdict(int)

    def enter(self, project: str, user: str, gpus: int, ends: float) -> None:
        for key in (project, (project, user)):
            heapq.heappush(self.ends[key], (ends, gpus))
            self.gpus[key] += gpus

    def opens(self, project: Project | None, task: Waiting, gpus: int) -> float:
        if project is None:
            return 0.0
        own = project.users.get(task.user, project.each_user)
        return max(
            self._opens(project.id, gpus, project.most_gpus, project.most_tasks),
            self._opens((project.id, task.user), gpus, own.most_gpus, own.most_tasks),
        )

    def _opens(self, key: Any, gpus: int, most_gpus: int | None, most_tasks: int | None) -> float:
        """Return when the limits allow so many GPUs more. Later requests do not start earlier: what has ended by then
        is dropped."""
        moment, ends = 0.0, self.ends[key]
        while (most_gpus is not None and self.gpus[key] + gpus > most_gpus) or (
            most_tasks is not None and len(ends) >= most_tasks
        ):
            if not ends:
                return _NEVER
            moment, ended = heapq.heappop(ends)
            self.gpus[key] -= ended
        return moment


_NOBODY_KNOWS = frozenset(
    {
        "ENVIRONMENT_UNAVAILABLE", "WAITING_FOR_FIT", "LIMIT_GPU_HOURS", "LIMIT_USER_GPU_HOURS", "BUDGET_SPENT",
    }
)  # fmt: skip
