"""Keeps what is free, what will be, and what is reserved for whom, during one scheduling pass."""

import heapq
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from fermi.scheduler.environment_groups import (
    ALWAYS,
    NEVER,
    CapacityRequest,
    EnvironmentGroup,
    EnvironmentPool,
    conflicts_with,
    exclude_environments,
)
from fermi.scheduler.gpu_packing import choose_sizes
from fermi.scheduler.placement import pick_environments
from fermi.scheduler.snapshot import EnvironmentInfo, Reservation, RunningTask, SchedulerSnapshot, Select, WaitingTask

ReadyKey = tuple[int, float, str]
"""How soon an environment comes free: a grade (free, being left, declared, expected, unknown), then the time, then its
id."""


class Capacity:
    """The environments of one scheduling pass. `free`, `coming`: pools of free and of held environments; `kept`: the
    task that each reserved environment waits for; `moments`: times at which reservations begin."""

    def __init__(self, snapshot: SchedulerSnapshot) -> None:
        self.now = snapshot.now
        self.by_id = {place.id: place for place in snapshot.places}
        self.windows = _group_reservations(snapshot.reservations, snapshot.now)
        self.holders: dict[str, RunningTask] = {key: held for held in snapshot.running for key in held.places}
        self.started: dict[str, str] = {}
        self.kept: dict[str, str] = {}
        self.leaving = {held.task for held in snapshot.running if held.leaving}
        self.free, self.coming = EnvironmentPool(self.windows), EnvironmentPool(self.windows)
        usable = [place for place in snapshot.places if place.usable]
        self.free.fill(place for place in usable if place.id not in self.holders)
        self.coming.fill((place for place in usable if place.id in self.holders), self.ready)
        self.moments = sorted(
            window.begins
            for window in snapshot.reservations
            if window.ends > snapshot.now and window.begins > snapshot.now
        )

    def ready(self, environment: EnvironmentInfo) -> ReadyKey:
        """Return how soon the environment comes free. Declared ends come before expected ones: a task that needs it
        then knows when it starts."""
        held = self.holders.get(environment.id)
        if held is None:
            return (0, self.now, environment.id)
        if held.task in self.leaving:
            return (1, held.since, environment.id)
        if held.until is not None:  # before what is only foreseen: whoever needs it then knows when it begins
            return (2, max(held.until, self.now), environment.id)
        return (
            (4, held.since, environment.id)
            if held.expected is None
            else (3, max(held.expected, self.now), environment.id)
        )

    def start(self, task: str, places: Iterable[EnvironmentInfo]) -> None:
        """Give the environments to a task that starts."""
        for place in places:
            self.free.remove(place)
            self.started[place.id] = task

    def reserve(self, task: str, places: Iterable[EnvironmentInfo], begins: float | None) -> None:
        """Reserve the environments for a task that starts at `begins`; None: nobody knows when."""
        for place in places:
            self.kept[place.id] = task
            if place.id in self.free.of:
                self.free.reserve(place, NEVER if begins is None else begins)
            elif place.id in self.coming.of:
                self.coming.remove(place)
        if begins is not None:
            self.moments = sorted({*self.moments, begins})

    def release(self, task: str) -> None:
        """Release what is reserved for the task."""
        for key in [key for key, owner in self.kept.items() if owner == task]:
            del self.kept[key]
            if key in self.free.of:
                self.free.reserve(self.by_id[key], ALWAYS)
            elif key in self.holders:
                self.coming.add(self.by_id[key])

    def floor(self, run: float | None) -> float:
        """Return the run time in seconds beyond which tasks cannot start either, where one that holds for `run`
        cannot."""
        end = ALWAYS if run is None else self.now + run
        before = bisect_left(self.moments, end)
        return self.moments[before - 1] - self.now if before else -1.0

    def list_open_groups(self, request: CapacityRequest, run: float | None) -> Sequence[EnvironmentGroup]:
        """Return the groups in which a task that holds for `run` seconds can start now."""
        lots = [
            lot
            for lot in self.free.list_matching(request)
            if lot.places
            and ((lot.kept == ALWAYS and not lot.windows) or lot.open_at(request.project, self.now, run))
        ]  # fmt: skip
        return exclude_environments(lots, request.select.exclude)

    def list_free_groups(self, request: CapacityRequest) -> Sequence[EnvironmentGroup]:
        """Return the groups of free environments, whoever they are reserved for."""
        return exclude_environments(
            [lot for lot in self.free.list_matching(request) if lot.places], request.select.exclude
        )

    def find_soonest(self, task: WaitingTask, request: CapacityRequest) -> list[EnvironmentInfo]:
        """Return those of the free and held environments that suffice first and are reserved for no task; empty:
        never."""
        select = request.select
        lots = [lot for stock in (self.free, self.coming) for lot in stock.list_matching(request)]
        groups: dict[tuple[str, str], list[EnvironmentGroup]] = {}
        for lot in lots:
            if lot.places and lot.kept == ALWAYS:
                zone = lot.kind.zone if select.same_zone else ""
                groups.setdefault((lot.kind.cluster, zone), []).append(lot)
        found = []
        for key, some in sorted(groups.items()):
            if select.counted([place for lot in some for place in lot.places]) >= select.target and (
                places := self._prefix(select, some, task)
            ):
                found.append((self._distance(task, places), key, places))
        return min(found)[2] if found else []

    def _prefix(self, select: Select, groups: Sequence[EnvironmentGroup], task: WaitingTask) -> list[EnvironmentInfo]:
        if any(lot.windows for lot in groups):
            there: Iterator[EnvironmentInfo] = iter(
                sorted((p for lot in groups for p in lot.places), key=self._after_windows(task))
            )
        else:
            there = heapq.merge(*(reversed(lot.places) for lot in groups), key=self.ready)
        left_out = set(select.exclude)
        places: list[EnvironmentInfo] = []
        gpus = 0
        for place in there:
            if place.id in left_out:
                continue
            places.append(place)
            gpus += place.gpus
            if is_sufficient(select, places, gpus):
                return self._needed(select, places)
        return []

    def _needed(self, select: Select, places: list[EnvironmentInfo]) -> list[EnvironmentInfo]:
        """Return the best of them. While it is unknown when they will be free, all that are free already stay, so that
        nothing gained is lost."""
        if select.total_gpus is None:
            return places
        lots = EnvironmentPool()
        lots.fill(places)
        chosen = pick_environments(select, sorted(lots.lots.values(), key=lambda lot: lot.kind.gpus))
        if all(self.sure(place) is not None for place in chosen):
            return chosen
        ids = {place.id for place in chosen}
        return chosen + [place for place in places if place.id not in ids and place.id not in self.holders]

    def _after_windows(self, task: WaitingTask) -> Callable[[EnvironmentInfo], ReadyKey]:
        def key(environment: EnvironmentInfo) -> ReadyKey:
            grade, moment, name = self.ready(environment)
            at = moment if grade in (2, 3) else self.now
            after = self.skip_reservations(environment, task, at)
            return (grade, moment, name) if after == at else (max(grade, 2), after, name)

        return key

    def skip_reservations(self, environment: EnvironmentInfo, task: WaitingTask, moment: float) -> float:
        """Return the time at which the task could start there, after the reservations of others."""
        for window in self.windows.get(environment.id, ()):
            end = ALWAYS if task.max_run is None else moment + task.max_run
            if conflicts_with(window, task.project, moment, end):
                moment = window.ends
        return moment

    def sure(self, environment: EnvironmentInfo) -> float | None:
        """Return when the environment is free at the latest by what was declared; None: unknown."""
        if environment.id in self.started:
            return None
        held = self.holders.get(environment.id)
        if held is None:
            return self.now
        return None if held.until is None or held.task in self.leaving else max(held.until, self.now)

    def begins(self, task: WaitingTask, places: Sequence[EnvironmentInfo]) -> float | None:
        """Return when all of these will be free for the task, by what was declared; None: unknown."""
        known = [self.sure(place) for place in places]
        if None in known:
            return None
        moment = max((self.now, *(one for one in known if one is not None)))
        while (later := max(self.skip_reservations(place, task, moment) for place in places)) > moment:
            moment = later  # it ends later, too, and may run into another reservation
        return moment

    def holder(self, key: str) -> str | None:
        """Return the task that has the environment."""
        if (task := self.started.get(key)) is not None:
            return task
        return held.task if (held := self.holders.get(key)) is not None else None

    def after(self, places: Iterable[EnvironmentInfo]) -> tuple[str, ...]:
        """Return the tasks that must end before all of these are free."""
        return tuple(dict.fromkeys(task for place in places if (task := self.holder(place.id)) is not None))

    def _distance(self, task: WaitingTask, places: Sequence[EnvironmentInfo]) -> tuple[int, float, float]:
        """Return the sort key of competing zones: the one with the fewest unknown ends first. What is reserved there
        only comes closer, so the choice is stable."""
        unsure = [place for place in places if self.sure(place) is None]
        begins = self.begins(task, places)
        waited = max((self.holders[place.id].since for place in unsure if place.id in self.holders), default=0.0)
        return (len(unsure), begins or 0.0, waited)


def _group_reservations(reservations: Iterable[Reservation], now: float) -> Mapping[str, tuple[Reservation, ...]]:
    found: dict[str, tuple[Reservation, ...]] = {}
    for one in sorted(reservations, key=lambda one: (one.begins, one.id)):
        if one.ends > now:
            for key in one.places:
                found[key] = (*found.get(key, ()), one)
    return found


def is_sufficient(select: Select, places: Sequence[EnvironmentInfo], gpus: int) -> bool:
    """Return whether the environments, with so many GPUs together, satisfy the request."""
    if select.total_gpus is None:
        return len(places) >= (select.nodes or 1)
    if gpus < select.total_gpus or len(places) < (select.nodes or 1):
        return False
    if select.nodes is None:
        return True
    there: dict[int, int] = {}
    for place in places:
        there[place.gpus] = there.get(place.gpus, 0) + 1
    return choose_sizes(there, select.total_gpus, select.nodes) is not None


def find_first_reservation(
    groups: Iterable[EnvironmentGroup], project: str, begin: float, end: float
) -> tuple[EnvironmentInfo, Reservation] | None:
    """Return the environment and the reservation of others that ends first, of those in the way; None: there is
    none."""
    found = [
        (lot.places[-1], window)
        for lot in groups
        for window in lot.windows
        if lot.places and conflicts_with(window, project, begin, end)
    ]
    return min(found, key=lambda one: (one[1].ends, one[0].id, one[1].id)) if found else None
