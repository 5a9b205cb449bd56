"""In which order tasks are asked."""

from hypothesis import given

from fermi.scheduler.order import decay_seconds, order_tasks, raise_class_by_age
from fermi.scheduler.snapshot import DAY_SECONDS, HALF_LIFE_SECONDS, Project, SchedulerSnapshot
from tests.unit.scheduler.snapshots import HOUR, NOW, held, snapshots, waiting


def names(found: list) -> list[str]:
    return [one.task for one in found]


@given(snapshots())
def test_tasks_are_ordered_by_class_and_within_a_project_by_age(snapshot: SchedulerSnapshot) -> None:
    found = order_tasks(snapshot.waiting, snapshot.running, snapshot.projects, snapshot.now)
    assert sorted(names(found)) == sorted(task.task for task in snapshot.waiting)
    classes = [raise_class_by_age(task, snapshot.now) for task in found]
    assert classes == sorted(classes, reverse=True)
    for project in snapshot.projects:
        for level in set(classes):
            ages = [
                task.since if task.position is None else task.position
                for task in found
                if task.project == project and raise_class_by_age(task, snapshot.now) == level
            ]
            assert ages == sorted(ages)


@given(snapshots())
def test_the_order_of_rows_does_not_matter(snapshot: SchedulerSnapshot) -> None:
    found = order_tasks(snapshot.waiting, snapshot.running, snapshot.projects, snapshot.now)
    assert names(
        order_tasks(reversed(snapshot.waiting), reversed(snapshot.running), snapshot.projects, snapshot.now)
    ) == names(found)


def test_projects_of_equal_use_alternate_by_weight() -> None:
    tasks = [waiting(f"{project}{i}", "e", project=project, since=NOW - 9 + i) for project in "ab" for i in range(6)]
    projects = {"a": Project("a", weight=2), "b": Project("b", weight=1)}
    found = names(order_tasks(tasks, (), projects, NOW))
    for cut in (3, 6, 9):
        assert sum(name.startswith("a") for name in found[:cut]) == 2 * cut // 3


def test_the_project_with_less_use_comes_first_and_current_leases_count() -> None:
    tasks = [waiting("a1", "e", project="a", since=NOW - 100), waiting("b1", "e", project="b", since=NOW - 50)]
    assert names(order_tasks(tasks, (), {}, NOW)) == ["a1", "b1"]
    assert names(order_tasks(tasks, (), {"a": Project("a", used=100.0)}, NOW)) == ["b1", "a1"]
    assert names(order_tasks(tasks, [held("h", "x", project="a")], {}, NOW, {"x": 8})) == ["b1", "a1"]


def test_use_decays_by_half_in_a_week() -> None:
    assert (
        abs(decay_seconds(1e9) - 2 * (decay_seconds(1e9) - decay_seconds(HALF_LIFE_SECONDS) + 0))
        < decay_seconds(1e9) * 1e-9
    )
    assert HOUR * 0.99 < decay_seconds(HOUR) < HOUR


def test_a_task_rises_by_one_class_a_day() -> None:
    low = [waiting(f"low{days}", "e", priority=-1, since=NOW - days * DAY_SECONDS) for days in (0, 1, 2, 3, 30)]
    assert [raise_class_by_age(task, NOW).name for task in low] == ["LOW", "NORMAL", "HIGH", "URGENT", "URGENT"]
    urgent = waiting("urgent", "e", priority=100)
    assert names(order_tasks([urgent, *low], (), {}, NOW))[:3] == ["low30", "low3", "urgent"]


def test_a_moved_task_stays_at_its_position() -> None:
    tasks = [
        waiting("first", "e", since=1.0),
        waiting("second", "e", since=2.0),
        waiting("moved", "e", since=3.0, position=1.5),
    ]
    assert names(order_tasks(tasks, (), {}, NOW)) == ["first", "moved", "second"]
