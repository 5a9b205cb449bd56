"""What change would let a task start now: each one that is named does."""

from dataclasses import replace
from typing import Any

from hypothesis import given

from fermi.scheduler.scheduler import make_decision
from fermi.scheduler.snapshot import PRIORITY_NUMBERS, Priority, Project, SchedulerSnapshot, Select, WaitingTask
from fermi.scheduler.what_if import find_sooner_starts
from tests.unit.scheduler.snapshots import HOUR, NOW, held, place, snapshot, snapshots, waiting


def codes(one: SchedulerSnapshot, task: str = "t") -> dict[str, Any]:
    return {problem.code: dict(problem.params) for problem in find_sooner_starts(one, task)}


def starts(one: SchedulerSnapshot, changed: WaitingTask) -> bool:
    tasks = tuple(changed if task.task == changed.task else task for task in one.waiting)
    turn = next(turn for turn in make_decision(replace(one, waiting=tasks)).turns if turn.task == changed.task)
    return bool(turn.start)


@given(snapshots(most=4))
def test_every_proposed_change_would_start_the_task(snapshot: SchedulerSnapshot) -> None:
    for task in snapshot.waiting:
        found = codes(snapshot, task.task)
        if "SOONER_SHORTER" in found:
            seconds = float(found["SOONER_SHORTER"]["seconds"])
            asked = task.expected_run or task.max_run or HOUR  # its weight in the fair share stays
            assert starts(snapshot, replace(task, max_run=seconds, expected_run=asked))
        if "SOONER_HIGHER_CLASS" in found:
            assert starts(snapshot, replace(task, priority=PRIORITY_NUMBERS[found["SOONER_HIGHER_CLASS"]["priority"]]))
        if starts(snapshot, task):
            assert not found


def test_fewer_gpus_another_type_and_another_zone_are_proposed() -> None:
    places = [
        place("a", 2, zone_name="zone a"), place("b", 4), place("c", 4, gpu_type="V100"), place("d", 4, zone="b"),
    ]  # fmt: skip
    task = waiting("t", select=Select(1, 4, gpu_types=("A100",), zones=("a",)))
    found = codes(snapshot([task], places, [held("h", "b")]))
    assert found["SOONER_FEWER_GPUS"] == {"wanted": "1 × 4 A100", "instead": "1 × 2 A100", "zone": "zone a"}
    assert found["SOONER_OTHER_TYPE"] == {"types": "V100", "wanted": "A100"}
    assert found["SOONER_OTHER_ZONE"] == {"zones": "b"}
    assert codes(snapshot([task], places)) == {}


def test_the_largest_free_combination_is_proposed() -> None:
    task = waiting("t", select=Select(total_gpus=14))
    found = codes(snapshot([task], [place("a", 8), place("b", 4)]))
    assert found["SOONER_FEWER_GPUS"]["instead"] == "12 GPU"


def test_excluded_and_unnamed_environments_are_proposed() -> None:
    places = [place("a"), place("b")]
    task = waiting("t", select=Select(1, exclude=("b",)))
    assert codes(snapshot([task], places, [held("h", "a")]))["SOONER_NOT_EXCLUDED"] == {"environments": "b"}
    found = codes(snapshot([waiting("t", "a")], places, [held("h", "a")]))
    assert found == {"SOONER_BY_CAPACITY": {"wanted": "1 × 4 A100", "environments": "b"}}


def test_a_shorter_run_is_proposed() -> None:
    wide = waiting("wide", select=Select(2), since=NOW - 90)
    holders = [held("h", "a", until=NOW + HOUR)]
    one = snapshot([wide, waiting("t", select=Select(1))], [place("a"), place("b")], holders)
    assert codes(one)["SOONER_SHORTER"] == {"seconds": 3600, "hours": "1.0"}


def test_a_permitted_higher_class_is_proposed() -> None:
    first = waiting("first", "a", since=NOW - 90)
    two = [first, waiting("t", "a")]
    assert codes(snapshot(two, [place("a")])) == {"SOONER_HIGHER_CLASS": {"priority": "high"}}
    lab = Project("lab", priorities=frozenset({Priority.LOW, Priority.NORMAL}))
    assert codes(snapshot(two, [place("a")], projects=[lab])) == {}
