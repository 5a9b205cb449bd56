"""Points are copied ahead for whoever compares curves, and nothing that ends a round in between loses any."""

from datetime import timedelta
from typing import Any

import pytest

from apps.common.clock import now
from apps.runs import curve_copies
from apps.training.core import metric_blocks
from apps.training.core.metric_curves import CurveReader
from apps.training.models import MetricBlock, MetricPoint, Task
from apps.training.states import TaskState
from tests.apps.runs.test_run_usage import copy

pytestmark = [pytest.mark.database, pytest.mark.django_db(transaction=True)]

POINTS = 50


class KilledError(BaseException):
    """Ends a process where it is raised."""


def end(task: Task, ago: timedelta = timedelta(minutes=10)) -> Task:
    Task.objects.filter(pk=task.pk).update(state=TaskState.SUCCEEDED, ended_at=now() - ago, due_at=None)
    return task


def add_points(task: Task, first: int = 0, count: int = POINTS) -> None:
    MetricPoint.objects.bulk_create(
        MetricPoint(task=task, attempt=1, rank=0, step=step, at=now(), values={"loss": 1.0 / (1 + step)})
        for step in range(first, first + count)
    )


def count_copied(task: Task) -> int:
    return sum(MetricBlock.objects.filter(task=task).values_list("count", flat=True))


def read_steps(task: Task) -> list[int]:
    (curve,) = CurveReader([task]).read(["loss"], 1_000_000)
    return [int(step) for step in curve.cells.first_steps]


def test_all_points_of_an_ended_task_are_copied_before_anyone_reads_them(task: Task, monkeypatch: Any) -> None:
    add_points(end(task))
    assert curve_copies.copy_curves() == 1
    assert count_copied(task) == POINTS - 1, "the newest point of a kind of lines waits"
    assert curve_copies.copy_curves() == 0
    task.refresh_from_db()
    monkeypatch.setattr(metric_blocks, "_copy_rows", None)  # nothing is left to copy
    assert read_steps(task) == list(range(POINTS))


def test_tasks_that_ended_long_ago_are_left_until_they_are_compared(task: Task) -> None:
    add_points(end(task, timedelta(days=40)))
    assert curve_copies.copy_curves() == 0
    assert count_copied(task) == 0


def test_points_of_a_running_task_are_copied_once_there_are_many(task: Task, monkeypatch: Any) -> None:
    monkeypatch.setattr(curve_copies, "MIN_RUNNING_ROWS", POINTS + 10)
    Task.objects.filter(pk=task.pk).update(state=TaskState.RUNNING)
    add_points(task)
    curve_copies.copy_curves()
    assert count_copied(task) == 0
    add_points(task, POINTS, 10)
    curve_copies.copy_curves()
    assert count_copied(task) == POINTS + 9


@pytest.mark.parametrize("killed_at", range(1, 7))
def test_a_round_that_is_killed_at_any_batch_is_made_up_for(task: Task, monkeypatch: Any, killed_at: int) -> None:
    monkeypatch.setattr(metric_blocks, "BATCH_ROWS", 20)
    tasks = [end(task), *(copy(task, f"task-{n}", state=TaskState.FAILED, due_at=None) for n in range(2))]
    Task.objects.update(ended_at=now() - timedelta(minutes=10))
    for one in tasks:
        add_points(one)
    calls, store = [], metric_blocks._copy_rows

    def store_or_die(*given: Any) -> None:
        calls.append(given)
        if len(calls) == killed_at:
            raise KilledError
        store(*given)

    monkeypatch.setattr(metric_blocks, "_copy_rows", store_or_die)
    with pytest.raises(KilledError):
        curve_copies.copy_curves()
    curve_copies.copy_curves()
    for one in tasks:
        assert count_copied(one) == POINTS - 1
        one.refresh_from_db()
        assert read_steps(one) == list(range(POINTS))


def test_a_task_whose_points_cannot_be_copied_does_not_stop_the_others(task: Task, monkeypatch: Any) -> None:
    broken, other = end(task), copy(task, "task-other", state=TaskState.FAILED, due_at=None)
    Task.objects.update(ended_at=now() - timedelta(minutes=10))
    add_points(broken)
    add_points(other)
    read = metric_blocks._read_new_rows
    monkeypatch.setattr(
        metric_blocks, "_read_new_rows", lambda key, *rest: 1 / 0 if key == broken.pk else read(key, *rest)
    )
    assert curve_copies.copy_curves() == 2
    assert (count_copied(broken), count_copied(other)) == (0, POINTS - 1)
