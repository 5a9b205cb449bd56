"""When tasks that wait will probably start."""

from typing import Any

from hypothesis import given

from fermi.scheduler.forecast import GRACE_SECONDS, Forecast, estimate_starts
from fermi.scheduler.scheduler import make_decision
from fermi.scheduler.snapshot import Project, Reservation, SchedulerSnapshot, Select
from tests.unit.scheduler.snapshots import HOUR, NOW, held, place, snapshot, snapshots, waiting


def forecast(*parts: Any, **more: Any) -> dict[str, Forecast]:
    one = snapshot(*parts, **more)
    return estimate_starts(one, make_decision(one))


@given(snapshots())
def test_each_waiting_task_has_an_ordered_estimate(snapshot: SchedulerSnapshot) -> None:
    decision = make_decision(snapshot)
    found = estimate_starts(snapshot, decision)
    assert found.keys() == {turn.task for turn in decision.turns if not turn.start}
    for one in found.values():
        if one.begins is None:
            assert (one.early, one.late) == (None, None)
        else:
            assert one.early is not None
            assert NOW <= one.early <= one.begins
            assert one.late is None or one.begins <= one.late


def test_a_task_starts_at_the_estimated_end_of_the_one_before_it() -> None:
    holder = held("h", "a", until=NOW + 4 * HOUR, expected=NOW + 2 * HOUR)
    tasks = [
        waiting("first", "a", since=NOW - 90, max_run=3 * HOUR, expected_run=HOUR),
        waiting("second", select=Select(1), since=NOW - 80),
        waiting("third", "a"),
    ]
    found = forecast(tasks, [place("a")], [holder])
    assert found["first"] == Forecast(NOW + 2 * HOUR, NOW + HOUR, NOW + 4 * HOUR, ("h",))
    assert found["second"] == Forecast(NOW + 3 * HOUR, NOW + 1.5 * HOUR, NOW + 7 * HOUR, ("first",))
    assert found["third"] == Forecast(None, None, None, ("second",))


def test_the_earliest_free_environments_are_used_and_unknown_ends_last() -> None:
    holders = [held("h", "a"), held("i", "b", until=NOW + HOUR), held("j", "c", leaving=True)]
    tasks = [waiting("t", select=Select(2), max_run=HOUR), waiting("u", select=Select(3))]
    found = forecast(tasks, [place("a"), place("b"), place("c")], holders)
    assert (found["t"].begins, set(found["t"].after)) == (NOW + HOUR, {"i", "j"})
    assert found["u"].begins is None
    alone = forecast([waiting("t", "c")], [place("c")], holders[2:])
    assert (alone["t"].early, alone["t"].begins) == (NOW, NOW + GRACE_SECONDS)


def test_a_task_starts_after_preemption_if_that_is_sooner() -> None:
    young = held("h", "a", preemptible=True, since=NOW, min_run=300, until=NOW + 9 * HOUR)
    found = forecast([waiting("t", "a", priority=1)], [place("a")], [young])
    assert found["t"] == Forecast(
        NOW + 300 + GRACE_SECONDS, NOW + 300 + GRACE_SECONDS, NOW + 300 + GRACE_SECONDS, ("h",)
    )


def test_limits_and_reserved_times_are_waited_for() -> None:
    lab = Project("lab", most_tasks=1)
    holder = held("h", "a", until=NOW + HOUR)
    found = forecast([waiting("t", "b")], [place("a"), place("b")], [holder], [lab])
    assert found["t"].begins == NOW + HOUR
    window = Reservation("r", frozenset("b"), NOW - HOUR, NOW + 3 * HOUR)
    found = forecast([waiting("t", "b")], [place("b")], reservations=[window])
    assert found["t"].begins == NOW + 3 * HOUR
    assert forecast([waiting("t", "b")], [place("b", usable=False)])["t"].begins is None
