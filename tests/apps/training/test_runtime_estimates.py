"""How long a task will probably run, by what tasks like it did."""

from datetime import datetime, timedelta

import pytest

from apps.clusters.models import AvailabilityZone, DevEnvironment, Lease
from apps.common.clock import now
from apps.training.models import Attempt, Task
from apps.training.queue import load, runtime_estimates
from apps.training.states import TaskState

pytestmark = [pytest.mark.database, pytest.mark.django_db]
HOUR = timedelta(hours=1)


def ran(
    task: Task, *hours: float, name: str = "t", state: TaskState = TaskState.SUCCEEDED, ago: timedelta = HOUR
) -> Task:
    """One like `task` that has ended, with an attempt of each length."""
    ended = now() - ago
    old = Task.objects.get(pk=task.pk)
    old.pk, old.name, old.state, old.due_at, old.ended_at = f"{name}-{Task.objects.count()}", name, state, None, ended
    old.save(force_insert=True)
    for number, length in enumerate(hours, 1):
        Attempt.objects.create(
            task=old, number=number, master_port=29500, created_at=ended - length * HOUR, ended_at=ended
        )
    return old


def row(task: Task) -> dict[str, object]:
    return Task.objects.values(*runtime_estimates.SIMILARITY_COLUMNS).get(pk=task.pk)


def test_the_median_of_longer_runs_gives_the_remaining_time(task: Task) -> None:
    for hours in ([1.0], [2.0, 1.0], [5.0]):
        ran(task, *hours)
    known = runtime_estimates.load_history(now())
    assert known.left(row(task)) == pytest.approx(3 * 3600)
    assert known.left(row(task), 2 * 3600.0) == pytest.approx(2 * 3600), "of 3 h and 5 h"
    assert known.left(row(task), 6 * 3600.0) is None, "longer than all: nobody knows"


def test_failed_and_old_runs_are_ignored(task: Task) -> None:
    ran(task, 1.0, state=TaskState.FAILED)
    ran(task, 1.0, ago=timedelta(days=100))
    assert runtime_estimates.load_history(now()).left(row(task)) is None


def test_runs_with_other_names_count_once_there_are_several(task: Task) -> None:
    for number in range(3):
        assert runtime_estimates.load_history(now()).left(row(task)) is None
        ran(task, number + 1.0, name=f"other-{number}")
    assert runtime_estimates.load_history(now()).left(row(task)) == pytest.approx(2 * 3600)


def test_running_and_waiting_tasks_have_estimates_in_the_snapshot(task: Task) -> None:
    ran(task, 3.0)
    zone = AvailabilityZone.objects.create(name="z")
    DevEnvironment.objects.create(pk="a", name="a", project=task.project, cluster=task.cluster, zone=zone)
    Lease.objects.create(environment_id="a", holder=task.pk)
    waits = ran(task, state=TaskState.SUCCEEDED)
    Task.objects.filter(pk=waits.pk).update(
        state=TaskState.QUEUED, in_line_at=now(), created_at=now(), due_at=now(), ended_at=None
    )
    moment = Lease.objects.get().since + HOUR
    plain, known = load.load_snapshot(moment), load.load_snapshot(moment, history=runtime_estimates.load_history(now()))
    [held], [waiting] = known.running, known.waiting
    assert (plain.running[0].expected, plain.waiting[0].expected_run) == (None, None)
    assert datetime.fromtimestamp(held.expected or 0, moment.tzinfo) == moment + 2 * HOUR
    assert waiting.expected_run == 3 * 3600
