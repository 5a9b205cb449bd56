"""The simulator and its rules themselves: EASY backfill keeps the rules that it knows, and rules that are broken on
purpose are found."""

import random
from collections.abc import Callable

import pytest

from fermi.jobs.spec import Problem
from fermi.scheduler.snapshot import (
    Decision,
    EnvironmentInfo,
    Preemption,
    Project,
    QueueEntry,
    Reservation,
    RunningTask,
    SchedulerSnapshot,
    Select,
    WaitingTask,
)
from tests.scheduler import baselines, rules
from tests.scheduler.engine import Engine, Job

WAITS = Problem("", "WAITING_FOR_CAPACITY")


def place(name: str, gpus: int = 4, **kind: object) -> EnvironmentInfo:
    return EnvironmentInfo(name, name, "p", "c", "z", gpus=gpus, shared=True, **kind)


def make_waiting_task(name: str, nodes: int = 1, since: float = 0.0, **more: object) -> WaitingTask:
    return WaitingTask(name, "p", "ann", "c", since, select=Select(nodes=nodes), **more)


def engine(jobs: list[Job], decide: Callable[[SchedulerSnapshot], Decision] = baselines.easy, **more: object) -> Engine:
    return Engine([place("a"), place("b")], [Project("p")], jobs, decide, **more)


def test_a_failed_task_resumes_from_its_checkpoint_where_there_is_room() -> None:
    job = Job(make_waiting_task("t"), work=1000, every=300, starting=10)
    run = engine([job], incidents=[(700, lambda one: one.set_usable("a", False))]).run()
    assert (job.lost, job.finished, job.waited) == ({"broken": [90.0]}, True, 0)
    assert run.busy == [(0, 700, 4), (700, 700 + 10 + 1000 - 600, 4)]


def test_a_failure_keeps_environments_and_a_run_ends_at_its_time_limit() -> None:
    failing, endless = (
        Job(make_waiting_task("f"), 1000, 300, fails=(500,)),
        Job(make_waiting_task("e", max_run=50), 1000),
    )
    engine([failing, endless]).run()
    assert failing.lost == {"failure": [200.0]}
    assert (failing.ended, failing.finished) == (1200, True)
    assert (endless.ended, endless.finished) == (50, False)


def test_a_preempted_task_keeps_its_age_and_checkpoint() -> None:
    def by_name(snapshot: SchedulerSnapshot) -> Decision:
        """`u` before `v`, whatever the rules say, and `v` gives way to it."""
        names = sorted(one.task for one in snapshot.waiting)
        free = ("a", "b") if not snapshot.running else ()
        turns = [
            QueueEntry(name, number, free if number == 1 else (), why=WAITS) for number, name in enumerate(names, 1)
        ]
        asked = names == ["u"] and bool(snapshot.running) and not snapshot.running[0].leaving
        return Decision(tuple(turns), (Preemption("v", "u", "PRIORITY"),) if asked else ())

    victim, urgent = (
        Job(make_waiting_task("v", 2), 1000, 300, starting=10),
        Job(make_waiting_task("u", 2, since=400, priority=100), 100),
    )
    engine([victim, urgent], by_name, grace=60.0).run()
    assert (urgent.first_start, urgent.ended) == (460, 560)
    assert (victim.preemptions, victim.lost, victim.waited) == (1, {"preemption": [90.0]}, 100)
    assert victim.ended == 560 + 10 + 1000 - 300


@pytest.mark.parametrize("seed", range(20))
def test_easy_backfill_keeps_its_promises(seed: int) -> None:
    """Tasks of one kind in one project, all of which say how long they run at most."""
    dice = random.Random(seed)
    jobs = []
    for number in range(60):
        work = dice.lognormvariate(7, 1.5)
        one = make_waiting_task(
            f"t{number:02}", dice.choice((1, 1, 1, 2, 4)), dice.uniform(0, 30_000), max_run=work * dice.uniform(1, 3)
        )
        jobs.append(Job(one, work))
    promises = rules.Promises()
    places = [place(f"e{number}") for number in range(6)]
    run = Engine(
        places, [Project("p")], jobs, baselines.easy, watch=[rules.watch, promises, rules.Busy(baselines.easy)]
    )
    rules.nobody_waits_for_ever(run.run())
    assert promises.kept
    assert all(job.finished for job in jobs)


@pytest.mark.parametrize(
    ("turn", "says"),
    [
        (QueueEntry("t", 1, ("a", "a")), "given twice"),
        (QueueEntry("t", 1, ("b", "c")), "while it is held"),
        (QueueEntry("t", 1, ("a",)), "another number"),
        (QueueEntry("t", 1, ("a", "d")), "may not run there"),
        (QueueEntry("t", 1, ("a", "e")), "runs into the reservation"),
        (QueueEntry("t", 1), "nobody knows why"),
        (QueueEntry("t", 2, why=WAITS), "numbers"),
        (QueueEntry("x", 1, why=WAITS), "does not wait"),
    ],
)
def test_a_decision_that_breaks_a_rule_is_detected(turn: QueueEntry, says: str) -> None:
    places = (place("a"), place("b"), place("c"), place("d", usable=False), place("e"))
    held = RunningTask("v", "p", "ann", ("b",), 0)
    window = Reservation("r", frozenset("e"), 100, 200)
    snapshot = SchedulerSnapshot(0, (make_waiting_task("t", 2),), (held,), places, {"p": Project("p")}, (window,))
    rules.check(snapshot, Decision((QueueEntry("t", 1, ("a", "c")),)))
    with pytest.raises(AssertionError, match=says):
        rules.check(snapshot, Decision((turn,)))
