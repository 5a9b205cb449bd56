"""A clock that is set, or a machine that was suspended: nobody is charged, nothing ends, and nothing rests for it."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.apps import apps
from django.db import OperationalError

from apps.accounts.models import Project, User
from apps.clusters import selectors
from apps.clusters.models import AvailabilityZone, Cluster, DevEnvironment, Lease
from apps.common import clock, clock_jumps
from apps.common.clock_jumps import MIN_JUMP, SHIFTED_COLUMNS, ClockWatcher, measure_elapsed, subtract_gaps
from apps.common.models import ClockJump
from apps.training.core import task_store
from apps.training.models import Task
from apps.training.reconcile import reconciler
from apps.training.states import TaskState
from fermi.jobs.spec import Entrypoint, JobSpec

pytestmark = pytest.mark.database

NOON = datetime(2026, 11, 26, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)


class Clocks:
    """The two clocks of a machine. `set`: as an operator or NTP does it; `suspend`: as a laptop's lid does."""

    def __init__(self) -> None:
        self.wall, self.steady = NOON, 1000.0

    def go(self, seconds: float) -> None:
        self.wall += timedelta(seconds=seconds)
        self.steady += seconds

    def set(self, by: timedelta) -> None:
        self.wall += by

    suspend = set

    def watch(self) -> ClockWatcher:
        return ClockWatcher(lambda: self.wall, lambda: self.steady)


@pytest.mark.parametrize("by", [HOUR, -HOUR, MIN_JUMP, timedelta(days=400)])
def test_a_jump_is_detected_once_by_the_difference_of_the_clocks(by: timedelta) -> None:
    clocks = Clocks()
    watch = clocks.watch()
    clocks.go(20)
    assert watch.find_jump() is None
    clocks.set(by)
    clocks.go(1)
    assert watch.find_jump() == (clocks.wall, by)
    clocks.go(600)
    assert watch.find_jump() is None


def test_elapsed_time_and_slow_corrections_are_no_jump() -> None:
    clocks = Clocks()
    watch = clocks.watch()
    for _ in range(100):
        clocks.go(3600)  # nobody looked for an hour
        clocks.set(timedelta(seconds=1.8))  # 500 parts per million
        assert watch.find_jump() is None


def test_runner_reports_from_before_a_jump_are_old_for_some_minutes() -> None:
    clocks = Clocks()
    watch = clocks.watch()
    clocks.set(HOUR)
    watch.find_jump()
    assert watch.lately() == HOUR
    clocks.set(-HOUR)
    watch.find_jump()
    assert watch.lately() == HOUR, "what went back makes nothing too old"
    clocks.go(601)
    assert watch.lately() == timedelta()


@pytest.mark.parametrize("by", [HOUR, -HOUR])
def test_a_jump_that_could_not_be_stored_is_detected_again(by: timedelta, monkeypatch: pytest.MonkeyPatch) -> None:
    clocks, stored = Clocks(), list[timedelta]()
    watch = clocks.watch()
    monkeypatch.setattr(clock_jumps, "_watcher", watch)
    clocks.set(by)

    def away(at: datetime, by: timedelta) -> bool:
        raise OperationalError

    monkeypatch.setattr(clock_jumps, "store_jump", away)
    with pytest.raises(OperationalError):
        clock_jumps.handle_jump()
    monkeypatch.setattr(clock_jumps, "store_jump", lambda at, by: stored.append(by))
    clocks.go(5)
    clock_jumps.handle_jump()
    clock_jumps.handle_jump()
    assert stored == [by]
    assert watch.lately() == max(by, timedelta())


def at(hours: float) -> datetime:
    return NOON + hours * HOUR


@pytest.mark.parametrize(
    ("left_out", "expected"),
    [
        ([], [(0, 4)]),
        ([(1, 2)], [(0, 1), (2, 4)]),
        ([(1, 2), (3, 3.5)], [(0, 1), (2, 3), (3.5, 4)]),
        ([(-1, 1)], [(1, 4)]),
        ([(3, 9)], [(0, 3)]),
        ([(-5, -1), (5, 6)], [(0, 4)]),
        ([(-1, 9)], []),
    ],
)
def test_an_interval_is_cut_at_a_jump(left_out: Any, expected: Any) -> None:
    found = list(subtract_gaps(at(0), at(4), [(at(begin), at(end)) for begin, end in left_out]))
    assert found == [(at(begin), at(end)) for begin, end in expected]
    assert (
        measure_elapsed(at(0), at(4), [(at(b), at(e)) for b, e in left_out]) == sum((e - b) for b, e in expected) * HOUR
    )


def test_an_interval_reversed_by_the_clock_is_empty() -> None:
    assert measure_elapsed(at(4), at(0), []) == timedelta()


def test_every_column_with_a_planned_time_is_shifted() -> None:
    """What else is measured by the clock, and is no plan that time brings about, is named here with its reason."""
    calendar = {"begins_at", "ends_at", "expires_at"}
    names = {field.name for model in apps.get_models() for field in model._meta.concrete_fields
             if model.__module__.startswith("apps.") and field.get_internal_type() == "DateTimeField"}  # fmt: skip
    plans = {name for name in names if name.endswith(("due_at", "deadline_at", "_until"))}
    assert plans <= {*SHIFTED_COLUMNS, *calendar}
    assert set(SHIFTED_COLUMNS) <= names


@pytest.mark.django_db
def test_two_processes_store_a_jump_once() -> None:
    assert clock_jumps.store_jump(NOON, HOUR)
    assert not clock_jumps.store_jump(NOON + timedelta(seconds=40), HOUR + timedelta(seconds=1))
    assert clock_jumps.store_jump(NOON + timedelta(seconds=50), -HOUR), "back again"
    assert [one.seconds for one in ClockJump.objects.order_by("pk")] == [3600.0, -3600.0]
    assert clock_jumps.list_gaps(NOON - HOUR) == [(NOON - HOUR, NOON)]


@pytest.fixture
def task(user: User) -> Task:
    """It waits in line for its only environment, which somebody else has."""
    project, cluster = Project.objects.create(name="p"), Cluster.objects.create(name="c", backend="local")
    zone = AvailabilityZone.objects.create(name="z")
    environment = DevEnvironment.objects.create(
        id="env-0", name="gn0", project=project, cluster=cluster, zone=zone, gpu_type="A100", gpu_count=1, emulated=True
    )  # fmt: skip
    Lease.objects.create(environment=environment, holder="task-other", since=clock.now())
    job = JobSpec(
        "task-x", "pytorch-ddp", tuple(selectors.build_nodes([environment])), "env-0", entrypoint=Entrypoint("x.py")
    )
    moment = clock.now()
    task = Task.objects.create(
        id="task-x", project=project, owner=user, cluster=cluster, name="t", framework=job.framework, request={},
        state=TaskState.QUEUED, state_since=moment, due_at=moment, created_at=moment, deadline_at=moment + 9 * HOUR,
        **task_store.build_job_columns(job),
    )  # fmt: skip
    task_store.store_nodes(task, job)
    return task


@pytest.fixture
def set_by(monkeypatch: pytest.MonkeyPatch) -> Callable[[timedelta], None]:
    """The wall clock has just gone so far beside the monotonic one, as this process sees at its next pass."""

    def set_by(by: timedelta) -> None:
        watch = ClockWatcher(clock.now, lambda: 0.0)
        watch._before = 0.0, clock.now() - by
        monkeypatch.setattr(clock_jumps, "_watcher", watch)

    return set_by


@pytest.mark.django_db(transaction=True)
def test_a_deadline_passed_by_a_jump_ends_nothing(task: Task, set_by: Callable[[timedelta], None]) -> None:
    Task.objects.update(deadline_at=clock.now() - HOUR)  # it was an hour ahead, and the clock went forward by two
    set_by(2 * HOUR)
    reconciler.reconcile_due_tasks()
    task.refresh_from_db()
    assert (task.state, task.attempt) == (TaskState.QUEUED, 0)
    assert task.deadline_at is not None
    assert abs(task.deadline_at - clock.now() - HOUR) < timedelta(minutes=2)


@pytest.mark.django_db(transaction=True)
def test_a_task_is_due_although_the_clock_went_back(task: Task, set_by: Callable[[timedelta], None]) -> None:
    Task.objects.update(due_at=clock.now() + 3 * HOUR, deadline_at=clock.now() + 4 * HOUR)
    assert reconciler.reconcile_due_tasks() == 0
    set_by(-3 * HOUR)
    assert reconciler.reconcile_due_tasks() == 1
    task.refresh_from_db()
    assert task.due_at is not None
    assert task.due_at < clock.now() + HOUR
