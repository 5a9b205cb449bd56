"""What runs have used: counted while they hold something, once after their end, and never lost by a kill."""

from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from django.db import IntegrityError

from apps.clusters.models import AvailabilityZone, DevEnvironment, Lease
from apps.common.clock import now
from apps.runs import backfill, usage, walks
from apps.runs.models import Position, Run
from apps.scheduling.models import Price, Usage
from apps.training.core import summaries
from apps.training.models import MetricPoint, MetricSummary, Task
from apps.training.states import TaskKind, TaskState

pytestmark = [pytest.mark.database, pytest.mark.django_db(transaction=True)]


def book(task: Task, hours: float, price: float | None = 2.0, gpus: int = 4, training: float = 0.5) -> None:
    """Book so many hours of an environment, of which a share moved training forward."""
    ends, seconds = now(), hours * 3600
    Usage.objects.create(
        task=task.pk, task_name=task.name, kind=task.kind, project=task.project, owner=task.owner.username,
        environment=None, environment_name="e", zone="z", gpu_type="", gpus=gpus,
        since=ends - timedelta(seconds=seconds), until=ends, training=training * seconds,
        starting=(1 - training) * seconds, per_gpu_hour=None if price is None else Decimal(price),
    )  # fmt: skip


def end(task: Task, at: datetime | None = None) -> None:
    Task.objects.filter(pk=task.pk).update(state=TaskState.SUCCEEDED, ended_at=at or now(), due_at=None)


def copy(task: Task, key: str, **changes: Any) -> Task:
    values = {field.attname: getattr(task, field.attname) for field in Task._meta.concrete_fields}
    return Task.objects.create(**{**values, "id": key, **changes})


def test_an_ended_task_is_counted_once_and_a_note_stays(task: Task) -> None:
    Run.objects.create(task=task, note="mine", archived_at=now())
    book(task, 1.0)
    book(task, 0.5, gpus=2, training=1.0)
    end(task, now() - timedelta(minutes=10))
    assert usage.count_usage() == 1
    row = Run.objects.get()
    assert [row.gpu_hours, row.cost, row.goodput] == pytest.approx([5, 10, 0.6])
    assert (row.note, row.archived_at is None) == ("mine", False)
    book(task, 1.0)
    assert usage.count_usage() == 0
    assert Run.objects.get().gpu_hours == pytest.approx(5)


def test_without_a_price_there_is_no_cost_and_without_use_no_goodput(task: Task) -> None:
    other = copy(task, "task-y")
    book(task, 1.0, price=None)
    end(task)
    end(other)
    usage.count_usage()
    assert Run.objects.get(task=task).cost is None
    row = Run.objects.get(task=other)
    assert (row.gpu_hours, row.cost, row.goodput) == (0.0, None, None)


def test_a_task_that_just_ended_is_counted_again_as_its_commit_may_be_late(task: Task) -> None:
    book(task, 1.0)
    end(task)
    usage.count_usage()
    late = copy(task, "task-late", state=TaskState.FAILED, due_at=None, ended_at=now() - timedelta(seconds=30))
    assert usage.count_usage() == 2
    assert Run.objects.filter(task=late).exists()


def test_a_running_task_is_counted_with_what_it_holds(task: Task) -> None:
    zone = AvailabilityZone.objects.create(name="z")
    environment = DevEnvironment.objects.create(
        cluster=task.cluster, zone=zone, project=task.project, name="e", gpu_count=2
    )
    Lease.objects.create(environment=environment, holder=task.pk, since=now() - timedelta(hours=2))
    Task.objects.update(created_at=now() - timedelta(hours=3))
    Price.objects.create(per_gpu_hour=Decimal(3), since=now() - timedelta(days=1))
    usage.count_usage()
    row = Run.objects.get()
    assert [row.gpu_hours, row.cost] == pytest.approx([4, 12], rel=0.01)


def test_every_task_is_counted_in_small_batches_also_where_they_ended_at_one_moment(
    task: Task, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(usage, "BATCH_SIZE", 2)
    moment = now() - timedelta(hours=1)
    states = (TaskState.SUCCEEDED, TaskState.FAILED, TaskState.STOPPED)
    for number in range(9):
        copy(task, f"task-{number}", state=states[number % 3], due_at=None, ended_at=moment)
    copy(task, "task-drill", kind=TaskKind.DRILL, state=TaskState.FAILED, due_at=None, ended_at=moment)
    end(task, moment - timedelta(hours=1))
    assert usage.count_usage() == 10
    assert Run.objects.count() == 10
    assert not Run.objects.filter(task="task-drill").exists()


def test_a_killed_round_goes_on_where_it_stopped(task: Task, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(usage, "BATCH_SIZE", 2)
    for number in range(6):
        ended = now() - timedelta(hours=9 - number)
        copy(task, f"task-{number}", state=TaskState.FAILED, due_at=None, ended_at=ended)
    end(task, now() - timedelta(hours=1))
    monkeypatch.setattr(usage, "ROUND_SECONDS", -1.0)
    counts = [usage.count_usage() for _ in range(5)]
    assert counts == [2, 2, 2, 1, 0]
    assert Run.objects.count() == 7


def test_a_task_that_is_deleted_meanwhile_leaves_the_others_counted(
    task: Task, monkeypatch: pytest.MonkeyPatch
) -> None:
    end(task, now() - timedelta(hours=1))
    gone = copy(task, "task-gone", state=TaskState.FAILED, due_at=None, ended_at=now() - timedelta(hours=1))
    real, calls = usage._store, list[int]()

    def store(rows: Any) -> None:
        calls.append(len(rows))
        if len(rows) == 2:
            gone.delete()
            raise IntegrityError("a row without its task")
        real(rows)

    monkeypatch.setattr(usage, "_store", store)
    usage.count_usage()
    assert calls == [2, 1]
    assert [row.task_id for row in Run.objects.all()] == ["task-x"]


def test_tasks_of_before_there_were_summaries_are_summarized_the_newest_first(
    task: Task, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backfill, "BATCH_SIZE", 2)
    end(task)
    order: list[str] = []
    rebuild = summaries.rebuild_summaries

    def record(key: str) -> None:
        order.append(key)
        rebuild(key)

    monkeypatch.setattr(backfill, "rebuild_summaries", record)
    for number in range(5):
        created = now() - timedelta(hours=number + 1)
        old = copy(task, f"task-{number}", state=TaskState.FAILED, due_at=None, ended_at=now(), created_at=created)
        for step in range(3):
            MetricPoint.objects.create(task=old, attempt=1, rank=1, step=step, at=now(), values={"loss": 5.0 - step})
    copy(task, "task-runs", state=TaskState.RUNNING, due_at=now(), created_at=now() - timedelta(days=1))
    monkeypatch.setattr(backfill, "ROUND_SECONDS", -1.0)
    assert [backfill.summarize_older_tasks() for _ in range(5)] == [2, 2, 2, 1, 0]
    assert order == ["task-x", *(f"task-{number}" for number in range(5))]
    rows = MetricSummary.objects.order_by("task").values_list("task", "name", "count", "last", "low", "high")
    assert list(rows) == [(f"task-{number}", "loss", 3, 3.0, 3.0, 5.0) for number in range(5)]
    assert backfill.summarize_older_tasks() == 0


def test_a_task_that_cannot_be_summarized_does_not_stop_the_others(task: Task, monkeypatch: pytest.MonkeyPatch) -> None:
    end(task)
    copy(task, "task-y", state=TaskState.FAILED, due_at=None, ended_at=now(), created_at=now() - timedelta(hours=1))
    done: list[str] = []

    def rebuild(key: str) -> None:
        if key == "task-x":
            raise RuntimeError
        done.append(key)

    monkeypatch.setattr(backfill, "rebuild_summaries", rebuild)
    assert backfill.summarize_older_tasks() == 2
    assert done == ["task-y"]


def test_a_walk_keeps_its_place_in_the_database(task: Task) -> None:
    end(task, now() - timedelta(hours=1))
    usage.count_usage()
    task.refresh_from_db()
    place = Position.objects.get(name=usage.WALK)
    assert (place.moment, place.task) == (task.ended_at, task.pk)
    assert walks.find_ended((place.moment, place.task), limit=1) == []
