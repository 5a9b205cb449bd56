"""What other schedulers do, in place of `make_decision`: the same snapshot, the same choice of environments."""

from collections.abc import Sequence

from fermi.jobs.spec import Problem
from fermi.scheduler.placement import choose_environments
from fermi.scheduler.snapshot import Decision, EnvironmentInfo, QueueEntry, SchedulerSnapshot, WaitingTask

LIMIT = 7 * 86_400.0
"""The run time of a task that declared none: a partition's default, as Slurm has one."""

WAITS = Problem("", "WAITING_FOR_CAPACITY")


def fifo(snapshot: SchedulerSnapshot) -> Decision:
    """By age; nobody starts before the first that cannot."""
    free = _free(snapshot)
    turns: list[QueueEntry] = []
    for number, task in enumerate(sorted(snapshot.waiting, key=lambda one: (one.since, one.task)), 1):
        chosen = () if any(not turn.start for turn in turns) else fitting(task, free)
        turns.append(_start(task, number, chosen, free) if chosen else QueueEntry(task.task, number, why=WAITS))
    return Decision(tuple(turns))


def easy(snapshot: SchedulerSnapshot) -> Decision:
    """FIFO, but behind the first that cannot start others do if by their declared run times they end before it would,
    or use none of what it will."""
    free = _free(snapshot)
    turns: list[QueueEntry] = []
    head: WaitingTask | None = None
    needed: set[str] = set()
    begins = 0.0
    for number, task in enumerate(sorted(snapshot.waiting, key=lambda one: (one.since, one.task)), 1):
        if head is None and (chosen := fitting(task, free)):
            turns.append(_start(task, number, chosen, free))
        elif head is None:
            head = task
            begins, needed = _shadow(snapshot, task, free, turns)
            sure = None if begins == float("inf") else begins
            turns.append(QueueEntry(task.task, number, why=WAITS, needs=tuple(sorted(needed)), begins=sure))
        else:
            short = snapshot.now + (task.max_run or LIMIT) <= begins
            open_to_it = free if short else {key: place for key, place in free.items() if key not in needed}
            chosen = fitting(task, open_to_it)
            turns.append(_start(task, number, chosen, free) if chosen else QueueEntry(task.task, number, why=WAITS))
    return Decision(tuple(turns))


def fitting(task: WaitingTask, free: dict[str, EnvironmentInfo]) -> Sequence[EnvironmentInfo]:
    if task.select is not None:
        return choose_environments(task, free.values())
    return [free[key] for key in task.named] if all(key in free for key in task.named) else []


def _free(snapshot: SchedulerSnapshot) -> dict[str, EnvironmentInfo]:
    taken = {key for held in snapshot.running for key in held.places}
    return {place.id: place for place in snapshot.places if place.usable and place.id not in taken}


def _start(
    task: WaitingTask, number: int, chosen: Sequence[EnvironmentInfo], free: dict[str, EnvironmentInfo]
) -> QueueEntry:
    for place in chosen:
        del free[place.id]
    return QueueEntry(task.task, number, tuple(place.id for place in chosen))


def _shadow(
    snapshot: SchedulerSnapshot, task: WaitingTask, free: dict[str, EnvironmentInfo], started: list[QueueEntry]
) -> tuple[float, set[str]]:
    """When the task can start by what was declared, and on which environments."""
    runs = {one.task: one.max_run or LIMIT for one in snapshot.waiting}
    ends = [(held.until or held.since + LIMIT, held.places) for held in snapshot.running]
    ends += [(snapshot.now + runs[turn.task], turn.start) for turn in started]
    by_id = {place.id: place for place in snapshot.places if place.usable}
    coming = dict(free)
    for moment, places in sorted(ends):
        coming.update({key: by_id[key] for key in places if key in by_id})
        if chosen := fitting(task, coming):
            return max(moment, snapshot.now), {place.id for place in chosen}
    return float("inf"), set()
