"""Chooses the tasks to preempt for a waiting one: the fewest, and of these the ones that lose the least work.

    PRIORITY    for a higher class, as requested: tasks that are `preemptible`, and tasks of projects that borrow
    GUARANTEE   for a project that takes back what it is guaranteed: tasks of projects that borrow, of any class

Never before `min_run`, never in vain, and a borrowing project takes nothing from one that does not borrow. Of a project
that borrows, tasks go first whose end leaves it what it is guaranteed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from typing import Any, Self

from fermi.scheduler.capacity import Capacity
from fermi.scheduler.environment_groups import (
    ALWAYS,
    CapacityRequest,
    EnvironmentGroup,
    EnvironmentPool,
    conflicts_with,
)
from fermi.scheduler.limits import Guarantees, count_shared_gpus
from fermi.scheduler.placement import pick_environments
from fermi.scheduler.snapshot import (
    EnvironmentInfo,
    Priority,
    RunningTask,
    SchedulerSnapshot,
    Select,
    WaitingTask,
    classify_priority,
)

PRIORITY, GUARANTEE = "PRIORITY", "GUARANTEE"
MAX_SEARCH_STEPS = 50_000
"""Steps of the search for the least lost work; a larger search takes the largest victims."""


@dataclass(frozen=True, slots=True, eq=False)
class Victim:
    """A task that may be preempted."""

    task: RunningTask
    why: str
    lost: float  # GPU-seconds since its newest checkpoint
    shared: int
    lends: bool  # only because its project borrows


@dataclass(frozen=True, slots=True)
class FreedCapacity:
    """What a task gets when these victims have gone."""

    victims: tuple[Victim, ...]
    places: list[EnvironmentInfo]


_HolderKind = tuple[str, Priority, bool, bool]
"""Of holders: project, class, preemptible, and whether they hold shared GPUs. Holders with the same key are preempted
alike."""


class PreemptionCandidates:
    """The tasks that may be preempted, and for whom.

    moments   when the `min_run` of a task is over that would be preempted then
    young     tasks whose `min_run` is not over, and when it is
    """

    def __init__(self, snapshot: SchedulerSnapshot, capacity: Capacity, guarantees: Guarantees) -> None:
        self.now, self.board, self.guarantees = snapshot.now, capacity, guarantees
        self.moments: set[float] = set()
        self.young: dict[str, float] = {}
        self._of: dict[str, _HolderKind] = {}
        self._young: dict[_HolderKind, float] = {}
        self._victims: dict[tuple[str, str], Victim] = {}
        shared = (
            {key for key, place in capacity.by_id.items() if place.shared and place.gpus} if guarantees.any else set()
        )
        for held in snapshot.running:
            kind = (
                held.project,
                classify_priority(held.priority),
                held.preemptible,
                not shared.isdisjoint(held.places),
            )
            self._of[held.task] = kind
            ready = held.since + held.min_run
            if ready > snapshot.now and not held.stays:
                self.young[held.task] = ready
                self._young[kind] = min(ready, self._young.get(kind, ready))
        self._kinds = [*set(self._of.values())]

    def later(self) -> Self:
        """Return the candidates as if every task's `min_run` were over."""
        if not self._young:
            return self
        found = copy(self)
        found.moments, found._young, found._victims = set(), {}, {}
        return found

    def to(self, task: WaitingTask, shared: int) -> PreemptionRequest:
        """Return what may be preempted for a task. `shared`: GPUs on shared environments that it would hold."""
        level = classify_priority(task.priority)
        takes_back = self.guarantees.reclaims_guarantee(task.project, shared)
        borrows = shared > 0 and self.guarantees.borrows(task.project, shared)
        why = {kind: self._why(kind, task.project, level, takes_back, borrows) for kind in self._kinds}
        self.moments.update(moment for kind, moment in self._young.items() if why[kind])
        return PreemptionRequest(self, {kind: said for kind, said in why.items() if said})

    def _why(self, kind: _HolderKind, project: str, level: Priority, takes_back: bool, borrows: bool) -> str:
        holder, holds, preemptible, shared = kind
        lends = shared and self.guarantees.borrows(holder)
        own = holder == project
        if level > holds and (preemptible or lends) and (own or lends or not borrows):
            return PRIORITY
        return GUARANTEE if takes_back and lends and not own else ""

    def why(self, running: RunningTask, reasons: Mapping[_HolderKind, str]) -> str:
        """Return why the running task may be preempted; empty: it may not."""
        if running.stays or running.task in self.board.leaving or (self._young and running.task in self.young):
            return ""
        return reasons.get(self._of[running.task], "")

    def victim(self, running: RunningTask, why: str) -> Victim:
        """Return the running task as a victim, with the work that it would lose."""
        found = self._victims.get((running.task, why))
        if found is None:
            places = [self.board.by_id[key] for key in running.places if key in self.board.by_id]
            since = max(running.since, running.saved_at or running.since)
            lost = sum(place.processes for place in places) * max(self.now - since, 0.0)
            found = Victim(running, why, lost, count_shared_gpus(places), why == GUARANTEE or not running.preemptible)
            self._victims[running.task, why] = found
        return found

    def ready(self, victims: Sequence[Victim]) -> float:
        """Return when all of them may be preempted."""
        return max((self.young.get(victim.task.task, self.now) for victim in victims), default=self.now)

    def leave(self, victims: Sequence[Victim]) -> bool:
        """Return whether these may go together: a task that goes only because its project borrows goes only while it
        does."""
        for project in {victim.task.project for victim in victims if victim.lends}:
            going = [victim.shared for victim in victims if victim.task.project == project]
            if not self.guarantees.borrows(project, -(sum(going) - max(going))):
                return False
        return True

    def spares(self, victim: Victim) -> bool:
        """Return whether the victim's project keeps what it is guaranteed."""
        return not victim.lends or self.guarantees.shared[
            victim.task.project
        ] - victim.shared >= self.guarantees.get_guarantee(victim.task.project)


@dataclass(frozen=True, slots=True)
class PreemptionRequest:
    """The tasks that may be preempted for one task."""

    givers: PreemptionCandidates
    kinds: Mapping[_HolderKind, str]

    def get(self, running: RunningTask) -> Victim | None:
        """Return the running task as a victim, or None where it may not be preempted."""
        why = self.givers.why(running, self.kinds)
        return self.givers.victim(running, why) if why else None


def free_named(task: WaitingTask, capacity: Capacity, candidates: PreemptionCandidates) -> FreedCapacity | None:
    """Return what must be preempted so that the task gets the environments that it names; None: impossible, or nothing
    holds them."""
    places = [capacity.by_id[key] for key in task.named]
    holders: dict[str, RunningTask] = {}
    for place in places:
        if place.id in capacity.started or _is_reserved(place.id, task, capacity):
            return None
        held = capacity.holders.get(place.id)
        if held is not None and held.task not in capacity.leaving:
            holders[held.task] = held
    if not holders:
        return None
    asked = candidates.to(task, count_shared_gpus(places))
    victims = tuple(victim for held in holders.values() if (victim := asked.get(held)) is not None)
    return FreedCapacity(victims, places) if len(victims) == len(holders) and candidates.leave(victims) else None


def free_select(
    task: WaitingTask, request: CapacityRequest, capacity: Capacity, candidates: PreemptionCandidates
) -> FreedCapacity | None:
    """Return what must be preempted so that the task gets the capacity that it asks for; None: impossible, or enough
    tasks are leaving already."""
    select = request.select
    may = candidates.to(task, select.total_gpus or (select.nodes or 1) * max(select.gpus_per_node or 0, 1))
    if not may.kinds:
        return None
    best: tuple[Any, FreedCapacity] | None = None
    for key, (there, gains) in sorted(_group_victims(task, request, capacity, may).items()):
        room = _free_group(select, there, [victim for victim, _ in gains.values()], gains, candidates)
        if room is not None and not room.victims:
            return None  # others are leaving already
        if room is not None:
            rated = (len(room.victims), sum(victim.lost for victim in room.victims), key)
            if best is None or rated < best[0]:
                best = (rated, room)
    if best is None:
        return None
    back = any(victim.why == GUARANTEE for victim in best[1].victims)
    if back and not candidates.guarantees.reclaims_guarantee(task.project, count_shared_gpus(best[1].places)):
        return None
    return best[1]


Gains = dict[str, tuple[Victim, list[EnvironmentInfo]]]
"""What each victim would free, by its task."""


def _group_victims(
    task: WaitingTask, request: CapacityRequest, capacity: Capacity, candidates: PreemptionRequest
) -> dict[tuple[str, str], tuple[list[EnvironmentInfo], Gains]]:
    """Return what can be used together, by cluster and zone: what is free or being left, and what each victim would
    free."""
    groups: dict[tuple[str, str], tuple[list[EnvironmentInfo], Gains]] = {}
    left_out = set(request.select.exclude)

    def group(group: EnvironmentGroup) -> tuple[list[EnvironmentInfo], Gains]:
        zone = group.kind.zone if request.select.same_zone else ""
        return groups.setdefault((group.kind.cluster, zone), ([], {}))

    for lot in capacity.list_open_groups(request, task.max_run):
        if lot.kept == ALWAYS:  # it starts only when others have gone, and might not end in time any more
            group(lot)[0].extend(lot.places)
    for lot in capacity.coming.list_matching(request):
        if not lot.places or (lot.windows and not lot.open_at(task.project, capacity.now, task.max_run)):
            continue
        there, gains = group(lot)
        for place in lot.places:
            held = capacity.holders[place.id]
            if place.id in left_out:
                continue
            if held.task in capacity.leaving:
                there.append(place)
            elif held.task in gains:
                gains[held.task][1].append(place)
            elif (victim := candidates.get(held)) is not None:
                gains[held.task] = (victim, [place])
    return groups


def _free_group(
    select: Select,
    available: list[EnvironmentInfo],
    victims_possible: list[Victim],
    gains: Gains,
    candidates: PreemptionCandidates,
) -> FreedCapacity | None:
    if chosen := _pick_environments(select, available):
        return FreedCapacity((), chosen)
    if select.counted([*available, *(place for _, some in gains.values() for place in some)]) < select.target:
        return None
    ways: tuple[Callable[[], list[Victim]], ...] = (
        lambda: [victim for victim in victims_possible if candidates.spares(victim)],
        lambda: victims_possible,
        lambda: _limit_by_guarantee(victims_possible, candidates),
    )
    for some in ways:
        victims = _choose_fewest(select, available, some(), gains, candidates.leave)
        if victims is not None:
            places = _pick_environments(
                select, available + [place for one in victims for place in gains[one.task.task][1]]
            )
            used = {place.id for place in places}
            needed = tuple(one for one in victims if any(place.id in used for place in gains[one.task.task][1]))
            return FreedCapacity(needed, places)
    return None


def _pick_environments(select: Select, places: Iterable[EnvironmentInfo]) -> list[EnvironmentInfo]:
    stock = EnvironmentPool()
    stock.fill(places)
    return pick_environments(select, sorted(stock.lots.values(), key=lambda lot: lot.kind.gpus))


def _limit_by_guarantee(victims: list[Victim], candidates: PreemptionCandidates) -> list[Victim]:
    """Return as many victims of each project as may go together, those that lose the least first."""
    found: list[Victim] = []
    going: dict[str, tuple[int, int, bool]] = {}  # by project: shared GPUs, the most of one, whether any lends
    for one in sorted(victims, key=_loss_key):
        total, most, lends = going.get(one.task.project, (0, 0, False))
        total, most, lends = total + one.shared, max(most, one.shared), lends or one.lends
        if not lends or candidates.guarantees.borrows(one.task.project, most - total):
            found.append(one)
            going[one.task.project] = (total, most, lends)
    return found


def _loss_key(victim: Victim) -> tuple[float, str]:
    return (victim.lost, victim.task.task)


def _choose_fewest(
    select: Select,
    available: list[EnvironmentInfo],
    candidates: list[Victim],
    gains: Gains,
    together: Callable[[Sequence[Victim]], bool],
) -> list[Victim] | None:
    missing = select.target - select.counted(available)
    gain = {one.task.task: min(select.counted(gains[one.task.task][1]), missing) for one in candidates}
    if select.total_gpus is None or select.nodes is None:
        victims = _choose_least_lost(missing, candidates, gain)
    else:
        victims = _choose_by_trial(select, available, candidates, gains)
    return victims if victims is not None and together(victims) else None


def _choose_least_lost(missing: int, candidates: list[Victim], gain: dict[str, int]) -> list[Victim] | None:
    """Return the fewest that free what is missing; of as few, those that lose the least."""
    largest = sorted(candidates, key=lambda one: (-gain[one.task.task], *_loss_key(one)))
    given, fewest = 0, 0
    while given < missing and fewest < len(largest):
        given += gain[largest[fewest].task.task]
        fewest += 1
    if given < missing:
        return None
    of_size: dict[int, list[Victim]] = {}
    for one in sorted(candidates, key=_loss_key):
        of_size.setdefault(gain[one.task.task], []).append(one)
    some = [(size, one) for size, victims in of_size.items() for one in victims[:fewest]]
    if len(some) * fewest * missing > MAX_SEARCH_STEPS:
        return largest[:fewest]
    best: dict[tuple[int, int], tuple[float, tuple[Victim, ...]]] = {(0, 0): (0.0, ())}
    for size, one in some:
        for (number, reached), (lost, chosen) in sorted(best.items(), reverse=True, key=lambda item: item[0]):
            key = (number + 1, min(reached + size, missing))
            if number < fewest and (key not in best or lost + one.lost < best[key][0]):
                best[key] = (lost + one.lost, (*chosen, one))
    return list(best[fewest, missing][1])


def _choose_by_trial(
    select: Select, available: list[EnvironmentInfo], candidates: list[Victim], gains: Gains
) -> list[Victim] | None:
    """Return victims for a number of environments with a number of GPUs: those that free the most, until it suffices;
    then without each that is not needed."""

    def enough(victims: Iterable[Victim]) -> bool:
        return bool(
            _pick_environments(select, available + [place for one in victims for place in gains[one.task.task][1]])
        )

    chosen: list[Victim] = []
    for one in sorted(
        candidates, key=lambda one: (-sum(place.gpus for place in gains[one.task.task][1]), *_loss_key(one))
    ):
        chosen.append(one)
        if enough(chosen):
            break
    else:
        return None
    for one in sorted(chosen, key=_loss_key, reverse=True):
        if enough(rest := [other for other in chosen if other is not one]):
            chosen = rest
    return chosen


def _is_reserved(key: str, task: WaitingTask, capacity: Capacity) -> bool:
    end = ALWAYS if task.max_run is None else capacity.now + task.max_run
    return any(conflicts_with(window, task.project, capacity.now, end) for window in capacity.windows.get(key, ()))
