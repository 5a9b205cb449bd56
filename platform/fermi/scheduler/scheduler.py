"""Decides which tasks start now and where, which are preempted, and why each other task waits.

Tasks are considered in their order (`fermi.scheduler.order`). One starts if no limit, no held environment, reserved
time or earlier task is in its way. The first that cannot start reserves the environments that it needs, then the next
ones do, at most `MAX_RESERVING_TASKS`: a later task gets reserved environments only if it certainly ends before the
earlier one starts (backfilling). So what starts early delays no task that waits longer.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fermi.jobs.spec import Problem
from fermi.scheduler import limits, preemption
from fermi.scheduler.capacity import Capacity, find_first_reservation
from fermi.scheduler.environment_groups import ALWAYS, CapacityRequest, build_request, kind_key
from fermi.scheduler.order import count_requested_gpus, order_tasks
from fermi.scheduler.placement import has_enough, list_alternatives, pick_environments
from fermi.scheduler.request_text import format_amount, format_request
from fermi.scheduler.snapshot import (
    DAY_SECONDS,
    Decision,
    EnvironmentInfo,
    Preemption,
    Priority,
    QueueEntry,
    SchedulerSnapshot,
    Select,
    WaitingTask,
    classify_priority,
)

CanRun = Callable[[WaitingTask, Sequence[EnvironmentInfo]], bool]
"""Whether a task can run on these environments, master first, by rules that this package does not know."""

MAX_RESERVING_TASKS = 16
"""Tasks that reserve environments."""


def accept_any(task: WaitingTask, places: Sequence[EnvironmentInfo]) -> bool:
    return True


def make_decision(snapshot: SchedulerSnapshot, can_run: CanRun = accept_any) -> Decision:
    """Return the decision of one scheduling pass. Pure, except for `can_run`, which is called only for what would start
    or be reserved."""
    return SchedulingPass(snapshot, can_run).decision()


class SchedulingPass:
    """One scheduling pass. What fails once fails for every later task that asks for the same: free capacity only
    shrinks during the pass."""

    def __init__(self, snapshot: SchedulerSnapshot, can_run: CanRun) -> None:
        self.scene, self.fits, self.now = snapshot, can_run, snapshot.now
        self.board = Capacity(snapshot)
        self.use = limits.GpuUsage(snapshot.running, self.board.by_id)
        self.guarantees = limits.Guarantees(snapshot.projects, snapshot.running, self.board.by_id)
        self.givers = preemption.PreemptionCandidates(snapshot, self.board, self.guarantees)
        self.later = self.givers.later()
        self.limited = {key for key, project in snapshot.projects.items() if limits.has_limits(project)}
        self.by_user = {key for key, project in snapshot.projects.items() if limits.has_user_limits(project)}
        self.zones = {place.zone: place.zone_name or place.zone for place in snapshot.places}
        self.wishes: dict[Any, int] = {}  # numbered, since a number is compared sooner
        self.asks: dict[Any, CapacityRequest] = {}
        self.texts: dict[Any, str] = {}
        self.failed: dict[Any, tuple[float, Problem]] = {}
        self.reserving = MAX_RESERVING_TASKS
        self.pools: set[Any] = set()
        self.lowest: dict[str, Priority] = {}  # class of what gives way, by project
        for held in snapshot.running:
            if held.preemptible:
                level = classify_priority(held.priority)
                self.lowest[held.project] = min(level, self.lowest.get(held.project, level))
        self.preempt: list[Preemption] = []
        sizes = {key: place.gpus for key, place in self.board.by_id.items()}
        line = order_tasks(snapshot.waiting, snapshot.running, snapshot.projects, self.now, sizes)
        self.line = limits.put_guaranteed_first(line, self.guarantees)
        for task in self.line:
            if task.promised:
                self._promise(task)

    def decision(self) -> Decision:
        """Process the whole queue and return the decision."""
        turns = [self._turn(task, number) for number, task in enumerate(self.line, 1)]
        return Decision(tuple(turns), tuple(self.preempt), self._again())

    def run_until(self, task: str) -> WaitingTask:
        """Process the tasks before this one and return it. Raises LookupError for a task that is not in the queue."""
        for number, one in enumerate(self.line, 1):
            if one.task == task:
                return one
            self._turn(one, number)
        raise LookupError(task)

    def would(self, task: WaitingTask) -> Sequence[EnvironmentInfo]:
        """Return the environments that the task would get if it came next; empty: it would wait."""
        project = self.scene.projects.get(task.project)
        if limits.find_broken_limit(task, project, self.use):
            return ()
        found = self._named(task) if task.select is None else self._chosen(task, self._signature(task))
        return found if isinstance(found, list) and not limits.find_broken_limit(task, project, self.use, found) else ()

    def _turn(self, task: WaitingTask, number: int) -> QueueEntry:
        what = self._signature(task)
        run = ALWAYS if task.max_run is None else task.max_run
        if not task.promised and (known := self.failed.get(what)) is not None and run > known[0]:
            return QueueEntry(task.task, number, why=known[1])
        project = self.scene.projects.get(task.project)
        limited = task.project in self.limited
        if limited and (limit := limits.find_broken_limit(task, project, self.use)):
            self.failed[what] = (-1.0, limit)
            return QueueEntry(task.task, number, why=limit)
        alike = self._alike(task, what) if task.select is not None and not task.promised else None
        if alike is not None and (known := self.failed.get(alike)) is not None and run > known[0]:
            self.failed[what] = known
            return QueueEntry(task.task, number, why=known[1])
        found = self._promised(task) if task.promised else None
        if found is None:
            found = self._named(task) if task.select is None else self._chosen(task, what)
        if isinstance(found, list):
            if limited and (limit := limits.find_broken_limit(task, project, self.use, found)):
                return QueueEntry(task.task, number, why=limit)
            return self._start(task, number, found)
        if found.code in _PERMANENT_REASONS:
            return QueueEntry(task.task, number, why=found)
        if task.promised and found.code == "MAKING_ROOM":
            return self._needing(task, number, found, [self.board.by_id[key] for key in task.promised], None)
        if self.reserving and (reserved := self._reserve(task, number, what, found)):
            return reserved
        if not task.promised:
            self.failed[what] = self.failed[alike or what] = (self.board.floor(task.max_run), found)
        return QueueEntry(task.task, number, why=found)

    def _signature(self, task: WaitingTask) -> Any:
        user = task.user if task.project in self.by_user else ""
        level = classify_priority(
            task.priority
        )  # as asked: others of the class may have aged, but make no room as it could
        wish = self.wishes.setdefault(_request_key(task), len(self.wishes))
        return (level, task.project, user, task.preemptible, task.cluster, wish)

    def _ask(self, task: WaitingTask, signature: Any) -> CapacityRequest:
        key = (task.project, task.cluster, signature[-1])
        found = self.asks.get(key)
        if found is None:
            found = self.asks[key] = build_request(task, self.scene.projects.get(task.project))
        return found

    def _alike(self, task: WaitingTask, signature: Any) -> Any:
        """Return what tasks of other projects share that could have the same environments, and for which the same tasks
        would be preempted while any may still make room."""
        wish, board, level = self._ask(task, signature), self.board, signature[0]
        own = board.windows or board.free.has_own_groups(task.project)
        rights: Any = None
        if self.reserving:
            gpus = count_requested_gpus(task, {})
            rights = (
                level,
                self.guarantees.reclaims_guarantee(task.project, gpus),
                self.guarantees.borrows(task.project, gpus),
            )
            own = own or self.lowest.get(task.project, level) < level or not board.coming.matches_shared(wish)
        return (rights, task.project if own else "", wish.filter, signature[-1])

    def _start(self, task: WaitingTask, number: int, places: Sequence[EnvironmentInfo]) -> QueueEntry:
        self.board.start(task.task, places)
        if task.promised:
            self._let_go(task)
        self.use.add(task.project, task.user, places)
        self.guarantees.add(task.project, places)
        guaranteed = self.guarantees.get_guarantee(task.project)
        borrowed = (
            self.guarantees.any and limits.count_shared_gpus(places) > 0 and self.use.shared[task.project] > guaranteed
        )
        return QueueEntry(task.task, number, tuple(place.id for place in places), borrowed)

    def _named(self, task: WaitingTask) -> list[EnvironmentInfo] | Problem:
        board, places, held = self.board, [], []
        for key in task.named:
            place = board.by_id.get(key)
            if place is None or not place.usable:
                name, status = (place.name, "unusable") if place else (key, "deleted")
                return Problem("", "ENVIRONMENT_UNAVAILABLE", {"environment": name, "status": status})
            places.append(place)
            if (holder := board.holder(key)) is not None:
                held.append((place, holder))
        if held:
            names = ", ".join([f"{place.name} ({holder})" for place, holder in held])
            holders = [{"environment": place.id, "task": holder} for place, holder in held]
            return Problem("", "WAITING_FOR_ENVIRONMENTS", {"held": names, "holders": holders})
        lots = [board.free.of[place.id] for place in places]
        end = ALWAYS if task.max_run is None else self.now + task.max_run
        for place, lot in zip(places, lots, strict=True):
            if not lot.open_at(task.project, self.now, task.max_run) and board.kept.get(place.id) != task.task:
                if any(end > lot.kept for lot in lots):
                    return self._for_turn()
                return self._for_window(find_first_reservation([lot], task.project, self.now, end), place)
        return places if self.fits(task, places) else self._unfit(None)

    def _chosen(self, task: WaitingTask, signature: Any) -> list[EnvironmentInfo] | Problem:
        wish = self._ask(task, signature)
        lots = self.board.list_open_groups(wish, task.max_run)
        if places := pick_environments(wish.select, lots):
            if self.fits(task, places):
                return places
            return next(
                (some for some in list_alternatives(wish.select, lots) if self.fits(task, some)),
                self._unfit(wish.select),
            )
        return self._why_none(task, wish, signature[-1])

    def _why_none(self, task: WaitingTask, request: CapacityRequest, request_key: Any) -> Problem:
        lots = self.board.list_free_groups(request)
        if not has_enough(request.select, lots):
            free = sum(len(lot.places) * (lot.kind.gpus if request.select.total_gpus else 1) for lot in lots)
            wanted = self.texts.get(request_key)
            if wanted is None:
                wanted = self.texts[request_key] = format_request(request.select, self.zones)
            return Problem("", "WAITING_FOR_CAPACITY", {"wanted": wanted, "free": format_amount(request.select, free)})
        end = ALWAYS if task.max_run is None else self.now + task.max_run
        window = find_first_reservation(lots, task.project, self.now, end)
        if window is None or any(end > lot.kept for lot in lots):
            return self._for_turn()
        return self._for_window(window, window[0])

    def _for_turn(self) -> Problem:
        return Problem("", "WAITING_FOR_TURN", {"ahead": len(set(self.board.kept.values()))})

    def _for_window(self, found: Any, environment: EnvironmentInfo) -> Problem:
        window = found[1]
        if window.project is None:
            params = {"environment": environment.name, "until": window.ends}
            return Problem("", "WAITING_FOR_MAINTENANCE", params)
        owner = self.scene.projects.get(window.project)
        name = owner.name or owner.id if owner else window.project
        params = {"environment": environment.name, "project": name, "until": window.ends}
        return Problem("", "WAITING_FOR_RESERVATION", params)

    def _unfit(self, select: Select | None) -> Problem:
        return Problem("", "WAITING_FOR_FIT", {"wanted": format_request(select, self.zones) if select else "–"})

    def _reserve(self, task: WaitingTask, number: int, signature: Any, why: Problem) -> QueueEntry | None:
        board = self.board
        if task.select is None and any(key in board.kept for key in task.named):
            return None
        if (room := self._room(task, signature, self.givers)) is not None:
            self.reserving -= 1
            return self._make_room(task, number, room)
        if task.select is None:
            places = [board.by_id[key] for key in task.named]
        else:
            wish = self._ask(task, signature)
            places = board.find_soonest(task, wish) if self._first_of_pool(wish) else []
        if not places:
            return None
        self.reserving -= 1
        later = self._room(task, signature, self.later) if self.givers.young else None
        turn = self._needing(task, number, why, places, board.begins(task, places))
        return turn if later is None else self._until_old(turn, later)

    def _room(
        self, task: WaitingTask, signature: Any, givers: preemption.PreemptionCandidates
    ) -> preemption.FreedCapacity | None:
        if task.select is None:
            room = preemption.free_named(task, self.board, givers)
        else:
            room = preemption.free_select(task, self._ask(task, signature), self.board, givers)
        return room if room is not None and self._allowed(task, room.places) else None

    def _until_old(self, turn: QueueEntry, room: preemption.FreedCapacity) -> QueueEntry:
        """Let the task wait until the `min_run` of those that could be preempted is over, if it would not start
        before."""
        at = self.later.ready(room.victims)
        if turn.begins is not None and turn.begins <= at:
            return turn
        why = turn.why
        if why is not None and why.code in ("WAITING_FOR_CAPACITY", "WAITING_FOR_TURN"):
            why = Problem("", "WAITING_FOR_MIN_RUN", {"tasks": len(room.victims), "begins": at})
        return turn._replace(why=why, room_at=at, after=tuple(victim.task.task for victim in room.victims))

    def _first_of_pool(self, request: CapacityRequest) -> bool:
        """Return whether no earlier task waits for any environments of the kinds that this one could use.

        Of the tasks that could use the same ones, only the first reserves some. If all did, free environments would
        stay idle: run times are declared too long, or not at all.
        """
        board = self.board
        kinds = {kind_key(lot.kind) for stock in (board.free, board.coming) for lot in stock.list_matching(request)}
        first = not kinds & self.pools
        self.pools |= kinds
        return first

    def _allowed(self, task: WaitingTask, places: Sequence[EnvironmentInfo]) -> bool:
        limit = limits.find_broken_limit(task, self.scene.projects.get(task.project), self.use, places)
        return limit is None and self.fits(task, places)

    def _make_room(self, task: WaitingTask, number: int, room: preemption.FreedCapacity) -> QueueEntry:
        for victim in room.victims:
            self.preempt.append(Preemption(victim.task.task, task.task, victim.why))
            self.board.leaving.add(victim.task.task)
            self.guarantees.add(victim.task.project, (self.board.by_id[key] for key in victim.task.places), -1)
        self.guarantees.add(task.project, room.places)
        return self._needing(task, number, self._giving_way(room.places), room.places, None)

    def _giving_way(self, places: Sequence[EnvironmentInfo]) -> Problem:
        holders = self.board.holders
        tasks = {holders[place.id].task for place in places if place.id in holders}
        return Problem("", "MAKING_ROOM", {"tasks": len(tasks)})

    def _let_go(self, task: WaitingTask) -> None:
        if any(owner == task.task for owner in self.board.kept.values()):
            self.board.release(task.task)
            self.guarantees.add(task.project, (self.board.by_id[key] for key in task.promised), -1)

    def _needing(
        self, task: WaitingTask, number: int, why: Problem, places: list[EnvironmentInfo], begins: float | None
    ) -> QueueEntry:
        after = self.board.after(places)
        self.board.reserve(task.task, places, begins)
        needs = tuple(place.id for place in places)
        return QueueEntry(task.task, number, why=why, needs=needs, begins=begins, after=after)

    def _promise(self, task: WaitingTask) -> None:
        """Reserve what other tasks were preempted for, if the task can still use it."""
        board = self.board
        places = [board.by_id[key] for key in task.promised if key in board.by_id]
        there = all(place.usable and board.holder(place.id) in (None, *board.leaving) for place in places)
        kept = any(place.id in board.kept for place in places)
        if kept or not there or len(places) < len(task.promised):
            return
        if limits.find_broken_limit(task, self.scene.projects.get(task.project), self.use, places) is None:
            board.reserve(task.task, places, None)
            self.guarantees.add(task.project, places)

    def _promised(self, task: WaitingTask) -> list[EnvironmentInfo] | Problem | None:
        board = self.board
        if any(board.kept.get(key) != task.task for key in task.promised):
            return None
        places = [board.by_id[key] for key in task.promised]
        if any(place.id in board.holders for place in places):
            return self._giving_way(places)
        if self.fits(task, places):
            return places
        self._let_go(task)
        return None

    def _again(self) -> float | None:
        moments = [*self.givers.moments]
        for window in self.scene.reservations:
            moments += [window.begins, window.ends]
        older = [  # each rises by a class when another day of its wait is over
            self.now + DAY_SECONDS - (self.now - task.since) % DAY_SECONDS
            for task in self.scene.waiting
            if task.priority < 100 and self.now - task.since < (3 - classify_priority(task.priority)) * DAY_SECONDS
        ]
        moments += [min(older)] if older else []
        return min((moment for moment in moments if moment > self.now), default=None)


_PERMANENT_REASONS = frozenset({"ENVIRONMENT_UNAVAILABLE", "WAITING_FOR_FIT"})
"""Reasons that no other task's end would change: such a task reserves nothing."""


def _request_key(task: WaitingTask) -> Any:
    select = task.select
    if select is None:
        return task.named
    labels: Mapping[str, str] = select.labels
    return (
        select.nodes, select.gpus_per_node, select.total_gpus, select.gpu_types, select.zones, select.same_zone,
        tuple(sorted(labels.items())) if labels else (), select.exclude, select.on_gpus,
    )  # fmt: skip
