"""Who gives way."""

from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from fermi.scheduler.placement import choose_environments, is_open_to, matches_request
from fermi.scheduler.scheduler import make_decision
from fermi.scheduler.snapshot import (
    Decision,
    Preemption,
    Project,
    QueueEntry,
    SchedulerSnapshot,
    Select,
    WaitingTask,
    classify_priority,
)
from tests.unit.scheduler.snapshots import HOUR, NOW, fleets, held, place, selects, snapshot, snapshots, waiting

ROOMY = Project("lab"), Project("shop")


def first(decision: Decision) -> QueueEntry:
    return decision.turns[0]


def victims(decision: Decision) -> set[str]:
    return {one.task for one in decision.preempt}


@st.composite
def contests(draw: st.DrawFn) -> SchedulerSnapshot:
    """One urgent task, and whoever has environments."""
    places = draw(fleets(usable=True))
    left, holders = list(draw(st.permutations([one.id for one in places]))), []
    while left and draw(st.integers(0, 9)):
        some, left = left[: draw(st.integers(1, 3))], left[3:]
        holders.append(
            held(
                f"h{len(holders)}", *some, preemptible=draw(st.sampled_from((True, True, False))),
                since=NOW - draw(st.integers(1, 9)) * HOUR, min_run=draw(st.sampled_from((0.0, 0.0, 10 * HOUR))),
                priority=draw(st.sampled_from((0, 0, 100))),
            )
        )  # fmt: skip
    task = waiting("t", select=draw(selects()), priority=1)
    return snapshot([task], places, holders)


def by_trying_all(snapshot: SchedulerSnapshot) -> tuple[int, float] | None:
    """How many must go, and the least work that is lost with as few."""
    task = snapshot.waiting[0]
    by_id = {one.id: one for one in snapshot.places}
    taken = {key for one in snapshot.running for key in one.places}
    free = [one for one in snapshot.places if one.id not in taken]
    may = [
        one for one in snapshot.running
        if one.preemptible and one.since + one.min_run <= NOW and classify_priority(one.priority) <
    classify_priority(task.priority) ]  # fmt: skip
    for number in range(len(may) + 1):
        lost = [
            sum(sum(by_id[key].processes for key in one.places) * (NOW - one.since) for one in some)
            for some in combinations(may, number)
            if choose_environments(task, [*free, *(by_id[key] for one in some for key in one.places)])
        ]
        if lost:
            return number, min(lost)
    return None


@given(contests())
def test_the_fewest_and_cheapest_tasks_are_preempted(snapshot: SchedulerSnapshot) -> None:
    decision = make_decision(snapshot)
    by_id = {one.id: one for one in snapshot.places}
    going = [one for one in snapshot.running if one.task in victims(decision)]
    lost = sum(sum(by_id[key].processes for key in one.places) * (NOW - one.since) for one in going)
    best = by_trying_all(snapshot)
    if first(decision).start:
        assert best == (0, 0)
        assert not going
        return
    select = snapshot.waiting[0].select
    if best is not None and select is not None and select.nodes is not None and select.total_gpus is not None:
        assert going  # a number of environments with a number of GPUs: few, if not the fewest
    else:
        assert (best or (0, 0)) == (len(going), lost)
    if going:
        needs = set(first(decision).needs)
        staying = {key for one in snapshot.running if one not in going for key in one.places}
        assert not needs & staying
        assert all(needs & set(one.places) for one in going)
        assert choose_environments(snapshot.waiting[0], [by_id[key] for key in needs])


@given(snapshots())
def test_no_task_is_preempted_without_need(snapshot: SchedulerSnapshot) -> None:
    decision = make_decision(snapshot)
    by_id = {one.id: one for one in snapshot.places}
    tasks = {task.task: task for task in snapshot.waiting}
    holders = {one.task: one for one in snapshot.running}
    assert len(victims(decision)) == len(decision.preempt)
    shared = {
        key: sum(
            by_id[one].gpus
            for other in snapshot.running
            if other.project == key
            for one in other.places
            if by_id[one].shared
        )
        for key in snapshot.projects
    }
    for one in decision.preempt:
        victim, by = holders[one.task], tasks[one.by]
        assert not victim.leaving
        assert victim.since + victim.min_run <= NOW
        borrows = shared[victim.project] > (snapshot.projects[victim.project].guaranteed or 0)
        if one.why == "PRIORITY":
            assert classify_priority(by.priority) > classify_priority(victim.priority)
            assert victim.preemptible or borrows
        else:
            assert borrows
            assert victim.project != by.project
            assert snapshot.projects[by.project].guaranteed
    for turn in decision.turns:
        going = {one.task for one in decision.preempt if one.by == turn.task}
        if going:
            assert turn.why is not None
            assert turn.why.code == "MAKING_ROOM"
            staying = {
                key for one in snapshot.running if one.task not in going and not one.leaving for key in one.places
            } | {key for other in decision.turns for key in other.start}
            assert not set(turn.needs) & staying
            task = tasks[turn.task]
            if task.select is not None:
                chosen = [by_id[key] for key in turn.needs]
                assert all(is_open_to(task.project, "c", one) and matches_request(task.select, one) for one in chosen)


def test_only_preemptible_tasks_of_a_lower_class_free_a_named_environment() -> None:
    task = waiting("t", "a", "b", priority=1)
    places = [place("a"), place("b")]
    holders = [held("h", "a", preemptible=True), held("i", "b", preemptible=True)]
    found = make_decision(snapshot([task], places, holders))
    assert found.preempt == (Preemption("h", "t", "PRIORITY"), Preemption("i", "t", "PRIORITY"))
    assert first(found).needs == ("a", "b")
    for other in (held("i", "b"), held("i", "b", preemptible=True, priority=1)):
        assert not make_decision(snapshot([task], places, [holders[0], other])).preempt


def test_no_task_is_preempted_before_its_min_run() -> None:
    young = held("h", "a", preemptible=True, since=NOW - 100, min_run=300)
    found = make_decision(snapshot([waiting("t", "a", priority=1)], [place("a")], [young]))
    assert (found.preempt, found.again) == ((), NOW + 200)
    assert (first(found).room_at, first(found).after) == (NOW + 200, ("h",))


def test_waiting_for_the_min_run_of_others_is_the_reason() -> None:
    places = [place("a"), place("b"), place("c")]
    holders = [
        held("h", "a", preemptible=True, since=NOW - 100, min_run=300),
        held("i", "b", preemptible=True, since=NOW - 100, min_run=900),
        held("j", "c", until=NOW + HOUR),
    ]
    turn = first(make_decision(snapshot([waiting("t", select=Select(2), priority=1)], places, holders)))
    assert turn.why is not None
    assert (turn.why.code, turn.why.params["tasks"], turn.room_at) == ("WAITING_FOR_MIN_RUN", 2, NOW + 800)
    assert set(turn.after) == {"h", "i"}
    holders[2] = held("j", "c", until=NOW + 60)
    turn = first(make_decision(snapshot([waiting("t", select=Select(1), priority=1)], places, holders)))
    assert turn.why is not None
    assert (turn.why.code, turn.room_at, turn.after) == ("WAITING_FOR_CAPACITY", None, ("j",))
    for other in (0, -1):
        turn = first(make_decision(snapshot([waiting("t", select=Select(2), priority=other)], places, holders)))
        assert turn.room_at is None


def guaranteed(lab: int | None, shop: int | None) -> list[Project]:
    return [Project("lab", guaranteed=lab), Project("shop", guaranteed=shop)]


def test_a_project_takes_back_its_guarantee_from_borrowers() -> None:
    places = [place(name) for name in "abcd"]
    holders = [held(f"h{name}", name, project="shop", priority=100) for name in "abcd"]
    task = waiting("t", select=Select(1, 4))
    found = make_decision(snapshot([task], places, holders, guaranteed(8, 8)))
    assert [(one.by, one.why) for one in found.preempt] == [("t", "GUARANTEE")]
    for lab, shop in ((3, 8), (8, 16)):
        assert not make_decision(snapshot([task], places, holders, guaranteed(lab, shop))).preempt
    wide = waiting("t", select=Select(3, 4))
    assert not make_decision(snapshot([wide], places, holders, guaranteed(12, 8))).preempt


def test_tasks_beyond_their_projects_guarantee_are_preempted_first() -> None:
    places = [place("a", 8), place("b", 4)]
    holders = [
        held("large", "a", project="shop", since=NOW - 60),
        held("small", "b", project="shop", since=NOW - 10 * HOUR),
    ]
    task = waiting("t", select=Select(1, 4))
    assert victims(make_decision(snapshot([task], places, holders, guaranteed(4, 8)))) == {"small"}


def test_borrowers_preempt_only_borrowers() -> None:
    places = [place("a"), place("b")]
    mine = held("mine", "a", project="shop", preemptible=True)
    task = waiting("t", "a", priority=1)
    assert not make_decision(snapshot([task], places, [mine], guaranteed(0, 4))).preempt
    assert victims(make_decision(snapshot([task], places, [mine], guaranteed(4, 4)))) == {"mine"}
    assert victims(make_decision(snapshot([task], places, [mine], guaranteed(0, 0)))) == {"mine"}


def test_borrowing_tasks_are_preempted_by_any_higher_class() -> None:
    task, holder = waiting("t", "a", priority=1), held("h", "a", project="shop")
    assert not make_decision(snapshot([task], [place("a")], [holder], ROOMY)).preempt
    assert victims(make_decision(snapshot([task], [place("a")], [holder], guaranteed(4, 0)))) == {"h"}


def test_a_preemption_is_requested_once_and_serves_its_requester() -> None:
    """A task that comes first, but may take nothing, does not get what others gave up for another."""
    places = [place("a"), place("b")]
    holders = [held("h", "a", preemptible=True), held("i", "b", since=NOW - 9 * HOUR)]
    old = waiting("old", select=Select(1), since=NOW - 80 * HOUR)
    high = waiting("high", select=Select(1), priority=1)
    found = make_decision(snapshot([old, high], places, holders))
    assert (first(found).task, found.preempt) == ("old", (Preemption("h", "high", "PRIORITY"),))
    asked = _told(high, found)
    leaving = [held("h", "a", preemptible=True, leaving=True), holders[1]]
    assert not make_decision(snapshot([old, asked], places, leaving)).preempt
    after = {turn.task: turn.start for turn in make_decision(snapshot([old, asked], places, holders[1:])).turns}
    assert after == {"old": (), "high": ("a",)}


def _told(task: WaitingTask, decision: Decision) -> WaitingTask:
    needs = next(turn.needs for turn in decision.turns if turn.task == task.task)
    return waiting(task.task, select=task.select, priority=task.priority, promised=needs)


def test_a_task_started_in_the_same_decision_is_not_preempted() -> None:
    places = [place("a")]
    tasks = [
        waiting("new", "a", priority=-1, preemptible=True, since=NOW - 80 * HOUR),
        waiting("high", "a", priority=1),
    ]
    found = make_decision(snapshot(tasks, places))
    assert (first(found).start, found.preempt) == (("a",), ())


def test_the_cheapest_of_the_smallest_sets_is_preempted() -> None:
    """One and three environments lose less than two and two do."""
    places = [place(name) for name in "abcdefgh"]
    holders = [
        held(name, *some, preemptible=True, saved_at=NOW - seconds)
        for name, some, seconds in (("one", "a", 10), ("two", "bc", 15), ("other", "de", 100), ("three", "fgh", 27))
    ]
    task = waiting("t", select=Select(4), priority=1)
    assert victims(make_decision(snapshot([task], places, holders))) == {"one", "three"}


def test_tasks_that_are_not_preemptible_are_not_waited_for() -> None:
    """A pre-flight test, and what an engine's own queue has begun; also where a project takes back its guarantee."""
    task = waiting("t", "a", priority=100)
    for more in ({"preemptible": True}, {"preemptible": True, "since": NOW - 100, "min_run": 300}, {}):
        stays = held("h", "a", stays=True, project="shop", **more)
        projects = [Project("lab", guaranteed=8), Project("shop", guaranteed=0)]
        found = make_decision(snapshot([task], [place("a")], [stays], projects))
        assert (found.preempt, found.again, first(found).room_at) == ((), None, None)
