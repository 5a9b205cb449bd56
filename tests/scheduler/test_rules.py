"""The rules of `make_decision` hold over thousands of random tasks, environments, failures and preemptions; the same
seed makes the same world."""

import dataclasses
import random

import pytest

from fermi.scheduler.scheduler import make_decision
from fermi.scheduler.snapshot import Decision, EnvironmentInfo, Project, SchedulerSnapshot, Select, WaitingTask
from tests.scheduler import random_clusters, rules
from tests.scheduler.engine import DAY, Engine, Job

HOUR = 3600.0
SEEDS = 240
LOTS = 12


def run(engine: Engine) -> rules.Promises:
    promises = rules.Promises()
    engine.watch = [rules.watch, promises, rules.Busy(make_decision)]
    rules.nobody_waits_for_ever(engine.run())
    rules.little_is_lost(engine)
    return promises


@pytest.mark.parametrize("lot", range(LOTS))
def test_every_rule_holds_in_random_clusters(lot: int) -> None:
    """Nothing is leased twice, limits and reservations hold, only backfill comes before an earlier task, nobody gives
    way in vain or loses more than one checkpoint interval, and nobody waits for ever."""
    engines = []
    for seed in range(lot, SEEDS, LOTS):
        engines.append(engine := random_clusters.world(seed, make_decision))
        try:
            run(engine)
        except AssertionError as broken:
            raise AssertionError(f"seed {seed}, at {engine.now}: {broken}") from broken
    jobs = [job for engine in engines for job in engine.jobs.values()]
    assert any(job.preemptions for job in jobs)
    assert sum(job.ended is not None for job in jobs) > 0.8 * len(jobs)


@pytest.mark.parametrize("seed", range(40))
def test_the_first_task_in_the_queue_starts_at_its_promised_time(seed: int) -> None:
    """Where all say how long they run, backfill never delays the head."""
    assert run(declared(seed)).kept


def declared(seed: int) -> Engine:
    dice = random.Random(seed)
    jobs = []
    for number in range(60):
        work = dice.lognormvariate(7, 1.5)
        select = Select(nodes=dice.choice((1, 1, 1, 2, 4)))
        since, priority, longest = (
            dice.uniform(0, 30_000),
            dice.choice(random_clusters.NUMBERS),
            work * dice.uniform(1, 3),
        )
        ask = WaitingTask(f"t{number:02}", "p", "ann", "c", since, (), select, priority, max_run=longest)
        jobs.append(Job(ask, work))
    places = [EnvironmentInfo(f"e{number}", f"e{number}", "p", "c", "z", gpus=4, shared=True) for number in range(6)]
    return Engine(places, [Project("p")], jobs, make_decision)


@pytest.mark.parametrize("priority", [-1, 0])
def test_a_wide_task_of_a_low_class_is_not_starved(priority: int) -> None:
    """Urgent tasks ask for one environment each, more of them than ever fit, from another project; they say nothing of
    how long they run. Waiting makes the wide task urgent, and then it keeps what it needs."""
    dice = random.Random(1)
    wide = Job(WaitingTask("wide", "q", "bob", "c", 1000, select=Select(nodes=6), priority=priority), HOUR)
    jobs = [wide]
    for number in range(500):
        ask = WaitingTask(f"t{number}", "p", "ann", "c", dice.uniform(0, 5 * DAY), (), Select(nodes=1), 100)
        jobs.append(Job(ask, dice.uniform(1.6, 3.2) * HOUR))
    places = [EnvironmentInfo(f"e{number}", f"e{number}", "p", "c", "z", gpus=4, shared=True) for number in range(6)]
    engine = Engine(places, [Project("p"), Project("q")], jobs, make_decision, watch=[rules.watch]).run(5 * DAY)
    assert len(engine.waiting) > 100
    assert wide.first_start is not None
    assert wide.first_start - 1000 <= 3 * DAY + 3.2 * HOUR


class Guarantees:
    """Per project, since when its first task waits though it asks for no more than what is guaranteed."""

    def __init__(self, bound: float) -> None:
        self.bound, self.taken_back = bound, 0
        self.since: dict[str, float] = {}

    def __call__(self, engine: Engine, snapshot: SchedulerSnapshot, decision: Decision) -> None:
        self.taken_back += sum(one.why == "GUARANTEE" for one in decision.preempt)
        held = dict.fromkeys(snapshot.projects, 0)
        for one in snapshot.running:
            held[one.project] += engine.gpus(one.places)
        first: dict[str, WaitingTask] = {}
        for turn in sorted(decision.turns, key=lambda turn: turn.number):
            ask = engine.jobs[turn.task].ask
            if turn.start:
                held[ask.project] += engine.gpus(turn.start)
            else:
                first.setdefault(ask.project, ask)
        for name, project in snapshot.projects.items():
            task = first.get(name)
            if task is None or held[name] + 4 * task.select.nodes > project.guaranteed:
                self.since.pop(name, None)
            else:
                waits = snapshot.now - self.since.setdefault(name, snapshot.now)
                assert waits <= self.bound, f"{task.task} of {name} has waited {waits} s for what is guaranteed"


@pytest.mark.parametrize("seed", range(30))
def test_a_project_gets_its_guarantee_once_borrowers_had_min_run_and_grace(seed: int) -> None:
    dice = random.Random(seed)
    places = [
        EnvironmentInfo(f"e{number:02}", f"e{number:02}", "p0", "c", "z", gpus=4, shared=True) for number in range(12)
    ]
    projects = [Project(f"p{number}", guaranteed=16) for number in range(3)]
    jobs = []
    for number in range(70):
        name = dice.choice(("p0", "p0", "p0", "p1", "p2"))
        since, select = dice.uniform(0, 20 * HOUR), Select(nodes=dice.choice((1, 1, 2, 3)), gpus_per_node=4)
        priority, longest = dice.choice(random_clusters.NUMBERS), dice.choice((None, 20 * HOUR))
        ask = WaitingTask(f"t{number:02}", name, "ann", "c", since, (), select, priority, max_run=longest)
        jobs.append(Job(ask, dice.lognormvariate(9, 1), min_run=dice.choice((0.0, 900.0))))
    watch = Guarantees(900.0 + 60.0)
    engine = Engine(places, projects, jobs, make_decision, grace=60.0, watch=[rules.watch, watch]).run()
    rules.nobody_waits_for_ever(engine)
    rules.little_is_lost(engine)
    assert watch.taken_back or seed


def test_time_alone_changes_nothing_before_the_announced_moment() -> None:
    """`again`: between events, the same snapshot a little later gets the same decision until then."""
    looked = 0

    def later(engine: Engine, snapshot: SchedulerSnapshot, decision: Decision) -> None:
        nonlocal looked
        soonest = min(decision.again or float("inf"), snapshot.now + HOUR)
        if decision.preempt or any(turn.start for turn in decision.turns):
            return
        again = make_decision(dataclasses.replace(snapshot, now=snapshot.now + (soonest - snapshot.now) * 0.999))
        assert not again.preempt
        assert not any(turn.start for turn in again.turns)
        looked += 1

    for seed in range(20):
        engine = random_clusters.world(seed, make_decision, tasks=20)
        engine.watch = [later]
        engine.run()
    assert looked > 200
