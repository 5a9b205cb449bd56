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
from fermi.scheduler.capacity import Board, first_window
from fermi.scheduler.environment_groups import ALWAYS, Ask, ask, kind
from fermi.scheduler.order import asked, order
from fermi.scheduler.placement import enough, pick, picks
from fermi.scheduler.request_text import amount, text
from fermi.scheduler.snapshot import DAY, Decision, Place, Preempt, Priority, Scene, Select, Turn, Waiting, priority_of

Fits = Callable[[Waiting, Sequence[Place]], bool]
"""Whether a task can run on these environments, master first, by rules that this package does not know."""

DEPTH = 16
"""Tasks that reserve environments."""


def anything(task: Waiting, places: Sequence[Place]) -> bool:
    return True


def decide(scene: Scene, fits: Fits = anything) -> Decision:
    """Return the decision of one scheduling pass. Pure, except for `can_run`, which is called only for what would start
    or be reserved."""
    return Walk(scene, fits).decision()


class Walk:
    """One scheduling pass. What fails once fails for every later task that asks for the same: free capacity only
    shrinks during the pass."""

    def __init__(self, scene: Scene, fits: Fits) -> None:
        self.scene, self.fits, self.now = scene, fits, scene.now
        self.board = Board(scene)
        self.use = limits.Use(scene.held, self.board.by_id)
        self.guarantees = limits.Guarantees(scene.projects, scene.held, self.board.by_id)
        self.givers = preemption.Givers(scene, self.board, self.guarantees)
        self.later = self.givers.later()
        self.limited = {key for key, project in scene.projects.items() if limits.may_refuse(project)}
        self.by_user = {key for key, project in scene.projects.items() if limits.has_user_limits(project)}
        self.zones = {place.zone: place.zone_name or place.zone for place in scene.places}
        self.wishes: dict[Any, int] = {}  # numbered, since a number is compared sooner
        self.asks: dict[Any, Ask] = {}
        self.texts: dict[Any, str] = {}
        self.failed: dict[Any, tuple[float, Problem]] = {}
        self.reserving = DEPTH
        self.pools: set[Any] = set()
        self.lowest: dict[str, Priority] = {}  # class of what gives way, by project
        for held in scene.held:
            if held.preemptible:
                level = priority_of(held.priority)
                self.lowest[held.project] = min(level, self.lowest.get(held.project, level))
        self.preempt: list[Preempt] = []
        sizes = {key: place.gpus for key, place in self.board.by_id.items()}
        line = order(scene.waiting, scene.held, scene.projects, self.now, sizes)
        self.line = limits.guaranteed_first(line, self.guarantees)
        for task in self.line:
            if task.promised:
                self._promise(task)

    def decision(self) -> Decision:
        """Process the whole queue and return the decision."""
        turns = [self._turn(task, number) for number, task in enumerate(self.line, 1)]
        return Decision(tuple(turns), tuple(self.preempt), self._again())

    def ask_before(self, task: str) -> Waiting:
        """Process the tasks before this one and return it. Raises LookupError for a task that is not in the queue."""
        for number, one in enumerate(self.line, 1):
            if one.task == task:
                return one
            self._turn(one, number)
        raise LookupError(task)

    def would(self, task: Waiting) -> Sequence[Place]:
        """Return the environments that the task would get if it came next; empty: it would wait."""
        project = self.scene.projects.get(task.project)
        if limits.problem(task, project, self.use):
            return ()
        found = self._named(task) if task.select is None else self._chosen(task, self._signature(task))
        return found if isinstance(found, list) and not limits.problem(task, project, self.use, found) else ()

    def _turn(self, task: Waiting, number: int) -> Turn:
        what = self._signature(task)
        run = ALWAYS if task.max_run is None else task.max_run
        if not task.promised and (known := self.failed.get(what)) is not None and run > known[0]:
            return Turn(task.task, number, why=known[1])
        project = self.scene.projects.get(task.project)
        limited = task.project in self.limited
        if limited and (limit := limits.problem(task, project, self.use)):
            self.failed[what] = (-1.0, limit)
            return Turn(task.task, number, why=limit)
        alike = self._alike(task, what) if task.select is not None and not task.promised else None
        if alike is not None and (known := self.failed.get(alike)) is not None and run > known[0]:
            self.failed[what] = known
            return Turn(task.task, number, why=known[1])
        found = self._promised(task) if task.promised else None
        if found is None:
            found = self._named(task) if task.select is None else self._chosen(task, what)
        if isinstance(found, list):
            if limited and (limit := limits.problem(task, project, self.use, found)):
                return Turn(task.task, number, why=limit)
            return self._start(task, number, found)
        if found.code in _FOREIGN:
            return Turn(task.task, number, why=found)
        if task.promised and found.code == "MAKING_ROOM":
            return self._needing(task, number, found, [self.board.by_id[key] for key in task.promised], None)
        if self.reserving and (reserved := self._reserve(task, number, what, found)):
            return reserved
        if not task.promised:
            self.failed[what] = self.failed[alike or what] = (self.board.floor(task.max_run), found)
        return Turn(task.task, number, why=found)

    def _signature(self, task: Waiting) -> Any:
        user = task.user if task.project in self.by_user else ""
        level = priority_of(task.priority)  # as asked: others of the class may have aged, but make no room as it could
        wish = self.wishes.setdefault(_wish(task), len(self.wishes))
        return (level, task.project, user, task.preemptible, task.cluster, wish)

    def _ask(self, task: Waiting, what: Any) -> Ask:
        key = (task.project, task.cluster, what[-1])
        found = self.asks.get(key)
        if found is None:
            found = self.asks[key] = ask(task, self.scene.projects.get(task.project))
        return found

    def _alike(self, task: Waiting, what: Any) -> Any:
        """Return what tasks of other projects share that could have the same environments, and for which the same tasks
        would be preempted while any may still make room."""
        wish, board, level = self._ask(task, what), self.board, what[0]
        own = board.windows or board.free.has_own(task.project)
        rights: Any = None
        if self.reserving:
            gpus = asked(task, {})
            rights = (
                level,
                self.guarantees.takes_back(task.project, gpus),
                self.guarantees.borrows(task.project, gpus),
            )
            own = own or self.lowest.get(task.project, level) < level or not board.coming.matches_shared(wish)
        return (rights, task.project if own else "", wish.filter, what[-1])

    def _start(self, task: Waiting, number: int, places: Sequence[Place]) -> Turn:
        self.board.start(task.task, places)
        if task.promised:
            self._let_go(task)
        self.use.add(task.project, task.user, places)
        self.guarantees.add(task.project, places)
        guaranteed = self.guarantees.of(task.project)
        borrowed = self.guarantees.any and limits.shared_of(places) > 0 and self.use.shared[task.project] > guaranteed
        return Turn(task.task, number, tuple(place.id for place in places), borrowed)

    def _named(self, task: Waiting) -> list[Place] | Problem:
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
                return self._for_window(first_window([lot], task.project, self.now, end), place)
        return places if self.fits(task, places) else self._unfit(None)

    def _chosen(self, task: Waiting, what: Any) -> list[Place] | Problem:
        wish = self._ask(task, what)
        lots = self.board.open_lots(wish, task.max_run)
        if places := pick(wish.select, lots):
            if self.fits(task, places):
                return places
            return next((some for some in picks(wish.select, lots) if self.fits(task, some)), self._unfit(wish.select))
        return self._why_none(task, wish, what[-1])

    def _why_none(self, task: Waiting, wish: Ask, wished: Any) -> Problem:
        lots = self.board.free_lots(wish)
        if not enough(wish.select, lots):
            free = sum(len(lot.places) * (lot.kind.gpus if wish.select.total_gpus else 1) for lot in lots)
            wanted = self.texts.get(wished)
            if wanted is None:
                wanted = self.texts[wished] = text(wish.select, self.zones)
            return Problem("", "WAITING_FOR_CAPACITY", {"wanted": wanted, "free": amount(wish.select, free)})
        end = ALWAYS if task.max_run is None else self.now + task.max_run
        window = first_window(lots, task.project, self.now, end)
        if window is None or any(end > lot.kept for lot in lots):
            return self._for_turn()
        return self._for_window(window, window[0])

    def _for_turn(self) -> Problem:
        return Problem("", "WAITING_FOR_TURN", {"ahead": len(set(self.board.kept.values()))})

    def _for_window(self, found: Any, place: Place) -> Problem:
        window = found[1]
        if window.project is None:
            params = {"environment": place.name, "until": window.ends}
            return Problem("", "WAITING_FOR_MAINTENANCE", params)
        owner = self.scene.projects.get(window.project)
        name = owner.name or owner.id if owner else window.project
        params = {"environment": place.name, "project": name, "until": window.ends}
        return Problem("", "WAITING_FOR_RESERVATION", params)

    def _unfit(self, select: Select | None) -> Problem:
        return Problem("", "WAITING_FOR_FIT", {"wanted": text(select, self.zones) if select else "–"})

    def _reserve(self, task: Waiting, number: int, what: Any, why: Problem) -> Turn | None:
        board = self.board
        if task.select is None and any(key in board.kept for key in task.named):
            return None
        if (room := self._room(task, what, self.givers)) is not None:
            self.reserving -= 1
            return self._make_room(task, number, room)
        if task.select is None:
            places = [board.by_id[key] for key in task.named]
        else:
            wish = self._ask(task, what)
            places = board.soonest(task, wish) if self._first_of_pool(wish) else []
        if not places:
            return None
        self.reserving -= 1
        later = self._room(task, what, self.later) if self.givers.young else None
        turn = self._needing(task, number, why, places, board.begins(task, places))
        return turn if later is None else self._until_old(turn, later)

    def _room(self, task: Waiting, what: Any, givers: preemption.Givers) -> preemption.Room | None:
        if task.select is None:
            room = preemption.of_named(task, self.board, givers)
        else:
            room = preemption.of_select(task, self._ask(task, what), self.board, givers)
        return room if room is not None and self._allowed(task, room.places) else None

    def _until_old(self, turn: Turn, room: preemption.Room) -> Turn:
        """Let the task wait until the `min_run` of those that could be preempted is over, if it would not start
        before."""
        at = self.later.ready(room.victims)
        if turn.begins is not None and turn.begins <= at:
            return turn
        why = turn.why
        if why is not None and why.code in ("WAITING_FOR_CAPACITY", "WAITING_FOR_TURN"):
            why = Problem("", "WAITING_FOR_MIN_RUN", {"tasks": len(room.victims), "begins": at})
        return turn._replace(why=why, room_at=at, after=tuple(victim.held.task for victim in room.victims))

    def _first_of_pool(self, wish: Ask) -> bool:
        """Return whether no earlier task waits for any environments of the kinds that this one could use.

        Of the tasks that could use the same ones, only the first reserves some. If all did, free environments would
        stay idle: run times are declared too long, or not at all.
        """
        board = self.board
        kinds = {kind(lot.kind) for stock in (board.free, board.coming) for lot in stock.matching(wish)}
        first = not kinds & self.pools
        self.pools |= kinds
        return first

    def _allowed(self, task: Waiting, places: Sequence[Place]) -> bool:
        limit = limits.problem(task, self.scene.projects.get(task.project), self.use, places)
        return limit is None and self.fits(task, places)

    def _make_room(self, task: Waiting, number: int, room: preemption.Room) -> Turn:
        for victim in room.victims:
            self.preempt.append(Preempt(victim.held.task, task.task, victim.why))
            self.board.leaving.add(victim.held.task)
            self.guarantees.add(victim.held.project, (self.board.by_id[key] for key in victim.held.places), -1)
        self.guarantees.add(task.project, room.places)
        return self._needing(task, number, self._giving_way(room.places), room.places, None)

    def _giving_way(self, places: Sequence[Place]) -> Problem:
        holders = self.board.holders
        tasks = {holders[place.id].task for place in places if place.id in holders}
        return Problem("", "MAKING_ROOM", {"tasks": len(tasks)})

    def _let_go(self, task: Waiting) -> None:
        if any(owner == task.task for owner in self.board.kept.values()):
            self.board.let_go(task.task)
            self.guarantees.add(task.project, (self.board.by_id[key] for key in task.promised), -1)

    def _needing(self, task: Waiting, number: int, why: Problem, places: list[Place], begins: float | None) -> Turn:
        after = self.board.after(places)
        self.board.keep(task.task, places, begins)
        needs = tuple(place.id for place in places)
        return Turn(task.task, number, why=why, needs=needs, begins=begins, after=after)

    def _promise(self, task: Waiting) -> None:
        """Reserve what other tasks were preempted for, if the task can still use it."""
        board = self.board
        places = [board.by_id[key] for key in task.promised if key in board.by_id]
        there = all(place.usable and board.holder(place.id) in (None, *board.leaving) for place in places)
        kept = any(place.id in board.kept for place in places)
        if kept or not there or len(places) < len(task.promised):
            return
        if limits.problem(task, self.scene.projects.get(task.project), self.use, places) is None:
            board.keep(task.task, places, None)
            self.guarantees.add(task.project, places)

    def _promised(self, task: Waiting) -> list[Place] | Problem | None:
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
            self.now + DAY - (self.now - task.since) % DAY
            for task in self.scene.waiting
            if task.priority < 100 and self.now - task.since < (3 - priority_of(task.priority)) * DAY
        ]
        moments += [min(older)] if older else []
        return min((moment for moment in moments if moment > self.now), default=None)


_FOREIGN = frozenset({"ENVIRONMENT_UNAVAILABLE", "WAITING_FOR_FIT"})
"""Reasons that no other task's end would change: such a task reserves nothing."""


def _wish(task: Waiting) -> Any:
    select = task.select
    if select is None:
        return task.named
    labels: Mapping[str, str] = select.labels
    return (
        select.nodes, select.gpus_per_node, select.total_gpus, select.gpu_types, select.zones, select.same_zone,
        tuple(sorted(labels.items())) if labels else (), select.exclude, select.on_gpus,
    )  # fmt: skip
