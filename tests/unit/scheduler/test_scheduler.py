"""Who starts, who keeps what, and why each other task waits."""

from dataclasses import replace

from hypothesis import given

from fermi.scheduler.limits import GpuUsage, find_broken_limit
from fermi.scheduler.placement import is_open_to, matches_request
from fermi.scheduler.scheduler import make_decision
from fermi.scheduler.snapshot import Decision, Project, QueueEntry, Reservation, SchedulerSnapshot, Select
from tests.unit.scheduler.snapshots import HOUR, NOW, held, place, snapshot, snapshots, waiting


def turns(decision: Decision) -> dict[str, QueueEntry]:
    return {turn.task: turn for turn in decision.turns}


def why(turn: QueueEntry) -> str:
    return turn.why.code if turn.why else ""


@given(snapshots())
def test_every_start_is_allowed(snapshot: SchedulerSnapshot) -> None:
    decision = make_decision(snapshot)
    by_id = {one.id: one for one in snapshot.places}
    tasks = {task.task: task for task in snapshot.waiting}
    given_now = [key for turn in decision.turns for key in turn.start]
    taken = {key for one in snapshot.running for key in one.places}
    assert len(given_now) == len(set(given_now))
    assert not taken & set(given_now)
    assert [turn.number for turn in decision.turns] == list(range(1, len(tasks) + 1))
    use = GpuUsage(snapshot.running, by_id)
    for turn in decision.turns:
        task = tasks[turn.task]
        assert bool(turn.start) != (turn.why is not None)
        chosen = [by_id[key] for key in turn.start]
        if not chosen:
            continue
        assert all(one.usable for one in chosen)
        if task.select is None:
            assert turn.start == task.named
        else:
            assert all(is_open_to(task.project, "c", one) and matches_request(task.select, one) for one in chosen)
        assert find_broken_limit(task, snapshot.projects[task.project], use, chosen) is None
        use.add(task.project, task.user, chosen)
        end = float("inf") if task.max_run is None else NOW + task.max_run
        for window in snapshot.reservations:
            if window.project != task.project and window.places & set(turn.start):
                assert end <= window.begins or window.ends <= NOW
        for earlier in decision.turns[: turn.number - 1]:
            if earlier.needs and set(earlier.needs) & set(turn.start):
                assert earlier.begins is not None
                assert end <= earlier.begins


@given(snapshots())
def test_kept_environments_are_kept_for_one_task(snapshot: SchedulerSnapshot) -> None:
    kept = [key for turn in make_decision(snapshot).turns for key in turn.needs]
    assert len(kept) == len(set(kept))


@given(snapshots(reserved=False))
def test_a_task_with_kept_environments_starts_no_later_than_promised(snapshot: SchedulerSnapshot) -> None:
    """Each holder and each that starts takes all the time that it may."""
    decision = make_decision(snapshot)
    ends = {key: one.until for one in snapshot.running for key in one.places}
    tasks = {task.task: task for task in snapshot.waiting}
    for turn in decision.turns:
        run = tasks[turn.task].max_run
        ends |= dict.fromkeys(turn.start, None if run is None else NOW + run)
    for turn in decision.turns:
        if turn.begins is not None:
            assert all((ends.get(key) or NOW) <= turn.begins for key in turn.needs)


@given(snapshots())
def test_equal_snapshots_have_equal_decisions(snapshot: SchedulerSnapshot) -> None:
    decision = make_decision(snapshot)
    assert make_decision(replace(snapshot, waiting=snapshot.waiting[::-1], running=snapshot.running[::-1])) == decision
    assert decision.again is None or decision.again > NOW


def test_a_wide_task_is_not_starved_by_small_ones() -> None:
    places = [place(f"e{i}") for i in range(3)]
    wide = waiting("wide", select=Select(3), since=NOW - 100)
    small = [waiting(f"small{i}", select=Select(1)) for i in range(5)]
    found = turns(make_decision(snapshot([wide, *small], places, [held("h", "e0")])))
    assert not any(turn.start for turn in found.values())
    assert set(found["wide"].needs) == {"e0", "e1", "e2"}
    assert found["wide"].after == ("h",)
    assert found["wide"].begins is None
    assert why(found["wide"]) == "WAITING_FOR_CAPACITY"
    assert why(found["small0"]) == "WAITING_FOR_TURN"


def test_a_short_task_is_backfilled_before_a_wide_one() -> None:
    places = [place(f"e{i}") for i in range(3)]
    wide = waiting("wide", select=Select(3), since=NOW - 100)
    short = waiting("short", select=Select(1), max_run=HOUR)
    long = waiting("long", select=Select(1), max_run=3 * HOUR)
    found = turns(make_decision(snapshot([wide, long, short], places, [held("h", "e0", until=NOW + 2 * HOUR)])))
    assert found["wide"].begins == NOW + 2 * HOUR
    assert found["short"].start
    assert not found["long"].start


def test_a_task_whose_environments_are_free_starts_before_earlier_tasks() -> None:
    tasks = [waiting("first", "a", "b", since=NOW - 100), waiting("second", "b"), waiting("third", "c")]
    found = turns(make_decision(snapshot(tasks, [place("a"), place("b"), place("c")], [held("h", "a")])))
    assert found["third"].start == ("c",)
    assert why(found["second"]) == "WAITING_FOR_TURN"
    assert found["first"].why is not None
    assert found["first"].why.params == {"held": "a (h)", "holders": [{"environment": "a", "task": "h"}]}


def test_a_task_that_may_not_start_keeps_no_environments() -> None:
    limited = waiting("limited", "a", since=NOW - 100)
    gone = waiting("gone", "a", "b", since=NOW - 90)
    other = waiting("other", "a", project="shop")
    places = [place("a"), place("b", usable=False)]
    found = turns(make_decision(snapshot([limited, gone, other], places, projects=[Project("lab", most_tasks=0)])))
    assert (why(found["limited"]), found["other"].start) == ("LIMIT_TASKS", ("a",))
    found = turns(make_decision(snapshot([gone, other], places)))
    assert (why(found["gone"]), found["other"].start) == ("ENVIRONMENT_UNAVAILABLE", ("a",))


def test_limits_hold_within_one_decision() -> None:
    tasks = [waiting(f"t{i}", select=Select(1)) for i in range(4)]
    lab = Project("lab", most_gpus=8)
    found = turns(make_decision(snapshot(tasks, [place(f"e{i}") for i in range(4)], projects=[lab])))
    assert [why(turn) for turn in found.values()] == ["", "", "LIMIT_GPUS", "LIMIT_GPUS"]


def test_reserved_times_are_kept_for_their_project_and_drained_for_maintenance() -> None:
    places = [place("a"), place("b")]
    windows = [
        Reservation("r", frozenset("a"), NOW + HOUR, NOW + 9 * HOUR, "shop"),
        Reservation("m", frozenset("b"), NOW + HOUR, NOW + 2 * HOUR),
    ]
    tasks = [waiting("long", "a"), waiting("theirs", "b", project="shop")]
    found = make_decision(snapshot(tasks, places, reservations=windows))
    assert [why(turn) for turn in found.turns] == ["WAITING_FOR_RESERVATION", "WAITING_FOR_MAINTENANCE"]
    assert found.again == NOW + HOUR
    short = [waiting("short", "a", max_run=HOUR), waiting("owner", "a", project="shop", since=NOW - 30)]
    found = make_decision(snapshot(short, places, reservations=windows))
    assert turns(found)["short"].start == ("a",)
    assert turns(make_decision(snapshot(short[1:], places, reservations=windows)))["owner"].start == ("a",)


def test_promised_environments_go_to_no_other_task() -> None:
    places = [place("a"), place("b")]
    tasks = [
        waiting("first", select=Select(1), priority=1),
        waiting("second", select=Select(2), promised=("a", "b")),
    ]
    leaving = [held("h", "b", leaving=True)]
    found = turns(make_decision(snapshot(tasks, places, leaving)))
    assert (why(found["second"]), found["second"].needs) == ("MAKING_ROOM", ("a", "b"))
    assert not found["first"].start
    assert turns(make_decision(snapshot(tasks, places)))["second"].start == ("a", "b")
    found = turns(make_decision(snapshot(tasks, places, [held("h", "b")])))  # it stays after all
    assert found["first"].start == ("a",)


def test_framework_rules_choose_another_set_or_make_it_wait() -> None:
    places = [place("a", 8), place("b", 4), place("c", 2), place("d", 8)]
    task = waiting("t", select=Select(total_gpus=14))
    equal = turns(make_decision(snapshot([task], places), lambda task, some: len({one.gpus for one in some}) == 1))["t"]
    assert set(equal.start) == {"a", "d"}
    assert why(turns(make_decision(snapshot([task], places), lambda task, some: False))["t"]) == "WAITING_FOR_FIT"
