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
from fermi.scheduler.capacity import Capacity, is_sufficient
from fermi.scheduler.environment_groups import CapacityRequest, EnvironmentGroup, EnvironmentPool, build_request
from fermi.scheduler.snapshot import (
    Decision,
    EnvironmentInfo,
    Project,
    QueueEntry,
    RunningTask,
    SchedulerSnapshot,
    WaitingTask,
)

EARLY_FACTOR, LATE_FACTOR = 0.5, 2.0
GRACE_SECONDS = 60.0
"""Seconds for which a task that was asked to end still has its environments."""
MAX_TASKS = 1000
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


def estimate_starts(snapshot: SchedulerSnapshot, decision: Decision) -> dict[str, Forecast]:
    """Return the forecast of each waiting task that does not start now."""
    probable, early, late = (
        _Timeline(snapshot, rest, run).walk(decision)
        for rest, run in ((_probable_end, _probable_run), (_early_end, _early_run), (_late_end, _late_run))
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


def _probable_end(running: RunningTask, now: float) -> float:
    known = [moment for moment in (running.until, running.expected) if moment is not None]
    if running.leaving:
        return min([now + GRACE_SECONDS, *known])
    return min(known, default=_NEVER)


def _early_end(running: RunningTask, now: float) -> float:
    rest = _probable_end(running, now)
    return now if running.leaving else now + EARLY_FACTOR * (rest - now)


def _late_end(running: RunningTask, now: float) -> float:
    if running.until is not None:
        return running.until
    rest = _probable_end(running, now)
    return now + LATE_FACTOR * (rest - now)


def _probable_run(task: WaitingTask) -> float:
    return min(task.expected_run or _NEVER, task.max_run if task.max_run is not None else _NEVER)


def _early_run(task: WaitingTask) -> float:
    return EARLY_FACTOR * _probable_run(task)


def _late_run(task: WaitingTask) -> float:
    return task.max_run if task.max_run is not None else LATE_FACTOR * _probable_run(task)


class _Timeline:
    """From when each environment is free, and which task has it until then."""

    def __init__(
        self,
        snapshot: SchedulerSnapshot,
        rest: Callable[[RunningTask, float], float],
        run: Callable[[WaitingTask], float],
    ) -> None:
        self.scene, self.now, self.run = snapshot, snapshot.now, run
        self.board = Capacity(snapshot)
        self.tasks = {task.task: task for task in snapshot.waiting}
        self.stock = EnvironmentPool(self.board.windows)
        self.stock.fill(place for place in snapshot.places if place.usable)
        self.gates = _LimitGates()
        self.at = dict.fromkeys(self.board.by_id, snapshot.now)
        self.last: dict[str, str] = {}
        for held in snapshot.running:
            ends = max(rest(held, snapshot.now), snapshot.now)
            places = [self.board.by_id[key] for key in held.places if key in self.board.by_id]
            self.gates.enter(held.project, held.user, limits.count_gpus(places), ends)
            for place in places:
                self.at[place.id], self.last[place.id] = ends, held.task
        self.lines = {id(lot): sorted((self.at[p.id], p.id) for p in lot.places) for lot in self.stock.lots.values()}
        self.asks: dict[Any, list[EnvironmentGroup]] = {}

    def walk(self, decision: Decision) -> dict[str, tuple[float, tuple[str, ...]]]:
        found = {}
        for turn in decision.turns[:MAX_TASKS]:
            task = self.tasks[turn.task]
            if turn.start:
                self._occupy(task, [self.board.by_id[key] for key in turn.start], self.now)
            elif turn.why is None or turn.why.code not in _UNPREDICTABLE_REASONS:
                found[turn.task] = self._next(task, turn)
        return found

    def _next(self, task: WaitingTask, turn: QueueEntry) -> tuple[float, tuple[str, ...]]:
        places = self._places(task, turn)
        if not places:
            return _NEVER, turn.after
        after = tuple(dict.fromkeys(self.last[place.id] for place in places if place.id in self.last))
        gate = self.gates.opens(self.scene.projects.get(task.project), task, limits.count_gpus(places))
        begins = max(self.now, gate, *(self.at[place.id] for place in places))
        if begins < _NEVER:
            for _ in range(3):  # past one reserved time, another may begin
                begins = max(self.board.skip_reservations(place, task, begins) for place in places)
        if turn.room_at is not None and turn.room_at + GRACE_SECONDS < begins:
            begins, after = turn.room_at + GRACE_SECONDS, turn.after
        self._occupy(task, places, begins)
        return begins, after

    def _places(self, task: WaitingTask, turn: QueueEntry) -> Sequence[EnvironmentInfo]:
        if keys := turn.needs or task.named:
            return [place for key in keys if (place := self.board.by_id.get(key)) is not None]
        assert task.select is not None
        wish = build_request(task, self.scene.projects.get(task.project))
        lots = self.asks.get(wish.filter)
        if lots is None:
            lots = self.asks[wish.filter] = self.stock.list_matching(wish)
        groups: dict[Any, list[EnvironmentGroup]] = defaultdict(list)
        for lot in lots:
            groups[lot.kind.cluster, lot.kind.zone if task.select.same_zone else ""].append(lot)
        each = ((key, self._soonest(wish, group)) for key, group in groups.items())
        found = [(self.at[some[-1].id], key, some) for key, some in each if some]
        return min(found, key=lambda one: one[:2])[2] if found else ()

    def _soonest(self, request: CapacityRequest, groups: Iterable[EnvironmentGroup]) -> list[EnvironmentInfo]:
        places: list[EnvironmentInfo] = []
        gpus = 0
        merged: Iterator[tuple[float, str]] = heapq.merge(*(self.lines[id(lot)] for lot in groups))
        for _, key in merged:
            if key not in request.select.exclude:
                places.append(self.board.by_id[key])
                gpus += places[-1].gpus
                if is_sufficient(request.select, places, gpus):
                    return places
        return []

    def _occupy(self, task: WaitingTask, places: Sequence[EnvironmentInfo], begins: float) -> None:
        ends = begins + self.run(task)
        self.gates.enter(task.project, task.user, limits.count_gpus(places), ends)
        for place in places:
            lot = self.stock.of.get(place.id)
            if lot is not None:
                line = self.lines[id(lot)]
                del line[bisect_left(line, (self.at[place.id], place.id))]
                insort(line, (ends, place.id))
            self.at[place.id], self.last[place.id] = ends, task.task


class _LimitGates:
    """When a project and a user are below their limits again."""

    def __init__(self) -> None:
        self.ends: defaultdict[Any, list[tuple[float, int]]] = defaultdict(list)
        self.gpus: defaultdict[Any, int] = defaultdict(int)

    def enter(self, project: str, user: str, gpus: int, ends: float) -> None:
        for key in (project, (project, user)):
            heapq.heappush(self.ends[key], (ends, gpus))
            self.gpus[key] += gpus

    def opens(self, project: Project | None, task: WaitingTask, gpus: int) -> float:
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


_UNPREDICTABLE_REASONS = frozenset(
    {
        "ENVIRONMENT_UNAVAILABLE", "WAITING_FOR_FIT", "LIMIT_GPU_HOURS", "LIMIT_USER_GPU_HOURS", "BUDGET_SPENT",
    }
)  # fmt: skip
