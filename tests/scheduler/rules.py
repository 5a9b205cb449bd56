"""What must hold in every decision, and from one to the next. A broken rule is an AssertionError that names it."""

import dataclasses
from collections import Counter
from collections.abc import Iterable, Mapping

from fermi.scheduler.placement import is_open_to, matches_request
from fermi.scheduler.snapshot import (
    Decision,
    EnvironmentInfo,
    Preemption,
    QueueEntry,
    SchedulerSnapshot,
    WaitingTask,
    classify_priority,
)
from tests.scheduler.engine import Decide, Engine

NEVER = float("inf")

BLOCKED = ("LIMIT_", "BUDGET_", "ENVIRONMENT_UNAVAILABLE")
"""Codes of a task that no environment would help."""


def watch(engine: Engine, snapshot: SchedulerSnapshot, decision: Decision) -> None:
    check(snapshot, decision)


def check(snapshot: SchedulerSnapshot, decision: Decision) -> None:
    """One decision by itself."""
    waiting = {task.task: task for task in snapshot.waiting}
    places = {place.id: place for place in snapshot.places}
    held = {key: one for one in snapshot.running for key in one.places}
    turns = sorted(decision.turns, key=lambda turn: turn.number)
    assert [turn.task for turn in turns if turn.task not in waiting] == [], "a turn for a task that does not wait"
    assert Counter(turn.task for turn in turns) == Counter(waiting.keys()), "each that waits has one turn"
    assert [turn.number for turn in turns] == list(range(1, len(turns) + 1)), "numbers go from 1 without gaps"
    taken = Counter(key for turn in turns for key in turn.start)
    assert not [key for key, times in taken.items() if times > 1], "given twice in one decision"
    assert not [key for key in taken if key in held], "given away while it is held"
    for turn in turns:
        if turn.start:
            suits(waiting[turn.task], [places[key] for key in turn.start])
            not_reserved(snapshot, waiting[turn.task], turn)
        else:
            assert turn.why, f"{turn.task} waits and nobody knows why"
    within_limits(snapshot, turns, waiting, places)
    only_backfill(snapshot, turns, waiting)
    reserved_once(turns)
    for one in decision.preempt:
        may_preempt(snapshot, turns, one, waiting, places)
    enough_room(snapshot, decision, places)


def suits(task: WaitingTask, chosen: list[EnvironmentInfo]) -> None:
    """The environments are what was asked for, and the task may run there."""
    assert all(is_open_to(task.project, task.cluster, place) for place in chosen), f"{task.task} may not run there"
    if task.select is None:
        assert [place.id for place in chosen] == list(task.named), f"{task.task} named other environments"
        return
    select = task.select
    assert all(matches_request(select, place) for place in chosen), f"{task.task} asked for another kind"
    if select.total_gpus is not None:
        gpus = [place.processes for place in chosen]
        assert sum(gpus) >= select.total_gpus > sum(gpus) - min(gpus), f"{task.task}: too few, or one too many"
    if select.nodes is not None or select.total_gpus is None:
        assert len(chosen) == (select.nodes or 1), f"{task.task}: another number of environments"
    assert not select.same_zone or len({place.zone for place in chosen}) == 1, f"{task.task}: more than one zone"
    assert len({place.cluster for place in chosen}) == 1, f"{task.task}: more than one cluster"


def not_reserved(snapshot: SchedulerSnapshot, task: WaitingTask, turn: QueueEntry) -> None:
    for window in snapshot.reservations:
        if window.ends <= snapshot.now or window.project == task.project or not window.places & set(turn.start):
            continue
        assert ends(snapshot, task) <= window.begins, f"{task.task} runs into the reservation {window.id}"


def ends(snapshot: SchedulerSnapshot, task: WaitingTask) -> float:
    """By when it surely ends if it starts now."""
    return NEVER if task.max_run is None else snapshot.now + task.max_run


def within_limits(
    snapshot: SchedulerSnapshot,
    turns: list[QueueEntry],
    waiting: Mapping[str, WaitingTask],
    places: Mapping[str, EnvironmentInfo],
) -> None:
    gpus: Counter[str] = Counter()
    tasks: Counter[str] = Counter()
    of_user: Counter[tuple[str, str]] = Counter()
    tasks_of_user: Counter[tuple[str, str]] = Counter()
    shared: Counter[str] = Counter()

    def count(project: str, user: str, keys: Iterable[str]) -> None:
        chosen = [places[key] for key in keys]
        gpus[project] += (found := sum(place.gpus for place in chosen))
        tasks[project] += 1
        of_user[project, user] += found
        tasks_of_user[project, user] += 1
        shared[project] += sum(place.gpus for place in chosen if place.shared)

    for held in snapshot.running:
        count(held.project, held.user, held.places)
    for turn in turns:
        if not turn.start:
            continue
        task = waiting[turn.task]
        count(task.project, task.user, turn.start)
        project = snapshot.projects[task.project]
        allowed = project.users.get(task.user, project.each_user)
        assert not project.stopped or project.only_preemptible, f"{task.task} starts though its project is stopped"
        if project.only_preemptible:
            assert task.preemptible or turn.borrowed, f"{task.task} starts though only preemptible ones may"
        at_most(gpus[task.project], project.most_gpus, "GPUs of the project")
        at_most(tasks[task.project], project.most_tasks, "tasks of the project")
        hours_left(project.spent_hours, project.gpu_hours, "GPU-hours of the project")
        at_most(of_user[task.project, task.user], allowed.most_gpus, "GPUs of the user")
        at_most(tasks_of_user[task.project, task.user], allowed.most_tasks, "tasks of the user")
        hours_left(project.spent_by_user.get(task.user, 0.0), allowed.gpu_hours, "GPU-hours of the user")
        for key in turn.start:
            assert not project.gpu_types or places[key].gpu_type in project.gpu_types, "a type that it may not use"
            assert not project.zones or places[key].zone in project.zones, "a zone that it may not use"
        if any(places[key].shared for key in turn.start):
            assert turn.borrowed == beyond(snapshot, task.project, shared[task.project]), (
                f"{task.task}: borrowed or not"
            )


def at_most(found: float, high: float | None, what: str) -> None:
    assert high is None or found <= high, f"{found} {what}, at most {high} are allowed"


def hours_left(spent: float, high: float | None, what: str) -> None:
    assert high is None or spent < high, f"{spent} {what} of {high} are spent"


def only_backfill(snapshot: SchedulerSnapshot, turns: list[QueueEntry], waiting: Mapping[str, WaitingTask]) -> None:
    """Who starts before an earlier one that waits for environments takes none that are kept for it, unless it gives
    them back in time."""
    kept: dict[str, QueueEntry] = {}
    for turn in turns:
        task = waiting[turn.task]
        for key in turn.start:
            if (earlier := kept.get(key)) is not None:
                assert earlier.begins is not None, f"{task.task} delays {earlier.task}"
                assert ends(snapshot, task) <= earlier.begins, f"{task.task} delays {earlier.task}"
        if not turn.start:
            kept.update({key: turn for key in turn.needs if key not in kept})


def reserved_once(turns: list[QueueEntry]) -> None:
    times = Counter(key for turn in turns for key in turn.needs)
    assert not [key for key, number in times.items() if number > 1], "an environment is kept for two tasks"
    for turn in turns:
        assert not (turn.start and turn.needs), f"{turn.task} starts and still needs something"


def may_preempt(
    snapshot: SchedulerSnapshot,
    turns: list[QueueEntry],
    one: Preemption,
    waiting: Mapping[str, WaitingTask],
    places: Mapping[str, EnvironmentInfo],
) -> None:
    by = waiting[one.by]
    victim = next((held for held in snapshot.running if held.task == one.task), None)
    assert victim is not None, f"{one.task} holds nothing and shall give way"
    assert not victim.leaving, f"{one.task} is leaving already"
    assert victim.since + victim.min_run <= snapshot.now, f"{one.task} may still run for its min_run"
    borrowed = beyond(snapshot, victim.project, shared_gpus(snapshot, turns, waiting, victim.project, places))
    if one.why == "PRIORITY":
        assert victim.preemptible or borrowed, f"{one.task} need not give way"
        assert classify_priority(by.priority) > classify_priority(victim.priority), f"{by.task} is of no higher class"
    else:
        assert one.why == "GUARANTEE"
        assert snapshot.projects[by.project].guaranteed is not None, f"{by.project} is guaranteed nothing"
        assert victim.project != by.project, f"{by.project} takes back from itself"
        assert beyond(snapshot, victim.project, shared_gpus(snapshot, turns, waiting, victim.project, places)), (
            f"{victim.project} has borrowed nothing"
        )


def beyond(snapshot: SchedulerSnapshot, project: str, gpus: int) -> bool:
    """Whether so many shared GPUs are more than its own, where anybody is guaranteed any."""
    return any(one.guaranteed is not None for one in snapshot.projects.values()) and gpus > (
        snapshot.projects[project].guaranteed or 0
    )


def shared_gpus(
    snapshot: SchedulerSnapshot,
    turns: list[QueueEntry],
    waiting: Mapping[str, WaitingTask],
    project: str,
    places: Mapping[str, EnvironmentInfo],
) -> int:
    """What it holds, with what starts now and what others make room for."""
    keys = [key for held in snapshot.running if held.project == project for key in held.places]
    for turn in turns:
        making = turn.why is not None and turn.why.code == "MAKING_ROOM"
        if waiting[turn.task].project == project:
            keys += turn.start or (turn.needs if making else ())
    return sum(places[key].gpus for key in keys if places[key].shared)


def enough_room(snapshot: SchedulerSnapshot, decision: Decision, places: Mapping[str, EnvironmentInfo]) -> None:
    """Nobody gives way in vain: with the victims and those that leave already, all that the task needs is free; and
    each victim has something that it needs."""
    started = {key for turn in decision.turns for key in turn.start}
    by_task = {held.task: held for held in snapshot.running}
    going = {one.task for one in decision.preempt}
    assert len({one.task for one in decision.preempt}) == len(decision.preempt), "asked to give way twice"
    for turn in decision.turns:
        victims = {one.task for one in decision.preempt if one.by == turn.task}
        if not victims:
            continue
        kept = [held for held in snapshot.running if not held.leaving and held.task not in going]
        staying = {key for held in kept for key in held.places}
        assert turn.needs, f"others give way for {turn.task}, which needs nothing"
        assert not set(turn.needs) & (staying | started), f"others give way for {turn.task} in vain"
        assert all(places[key].usable for key in turn.needs), f"others give way for {turn.task} in vain"
        for name in victims:
            assert set(by_task[name].places) & set(turn.needs), f"{name} gives way in vain"


class Promises:
    """`begins` of the first that waits for environments is kept: no later decision moves it back, and by then it has
    started. What nobody could know ends a promise: another one comes before it, an environment breaks, a limit or a
    reservation is new."""

    def __init__(self) -> None:
        self.task, self.begins, self.made, self.kept = "", NEVER, 0.0, 0

    def __call__(self, engine: Engine, snapshot: SchedulerSnapshot, decision: Decision) -> None:
        turns = sorted(decision.turns, key=lambda turn: turn.number)
        first = next((turn for turn in turns if turn.start or not blocked(turn)), None)
        if first is None or first.task != self.task or engine.disturbed >= self.made:
            self.task, self.begins = first.task if first else "", NEVER
        if first is None:
            return
        if first.start:
            self.kept += self.begins < NEVER
        else:
            assert snapshot.now < self.begins, f"{first.task} was to start at {self.begins}, it is {snapshot.now}"
        going = {key for held in snapshot.running if held.leaving for key in held.places}
        if first.begins is not None and not going & set(first.needs) and not decision.preempt:
            assert first.begins <= self.begins, f"{first.task} was to start at {self.begins}, now at {first.begins}"
            self.begins, self.made = first.begins, snapshot.now


def blocked(turn: QueueEntry) -> bool:
    return turn.why is not None and turn.why.code.startswith(BLOCKED)


class Busy:
    """While nothing runs and no reservation holds, nobody waits who could start alone."""

    def __init__(self, decide: Decide) -> None:
        self.decide = decide

    def __call__(self, engine: Engine, snapshot: SchedulerSnapshot, decision: Decision) -> None:
        if not snapshot.running and not snapshot.reservations and not any(turn.start for turn in decision.turns):
            could = [task.task for task in snapshot.waiting if starts_alone(snapshot, task, self.decide)]
            assert not could, f"everything is idle, and {could[:3]} wait"


def starts_alone(snapshot: SchedulerSnapshot, task: WaitingTask, decide: Decide) -> bool:
    alone = dataclasses.replace(snapshot, waiting=(task,), running=(), reservations=())
    return bool(decide(alone).turns[0].start)


def nobody_waits_for_ever(engine: Engine) -> None:
    """At the end only those wait that could not start if they were alone."""
    assert not engine.held
    snapshot = engine.snapshot()
    left = [task.task for task in snapshot.waiting if starts_alone(snapshot, task, engine.decide)]
    assert not left, f"{left[:3]} wait for ever"


def little_is_lost(engine: Engine) -> None:
    for name, job in engine.jobs.items():
        assert all(seconds <= job.every for seconds in job.lost.get("preemption", ())), f"{name} lost too much"
        assert job.preemptions == len(job.lost.get("preemption", ()))
