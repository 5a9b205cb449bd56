"""Tasks that have ended long ago go, and nothing that something else needs."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from apps.accounts.models import AuditEvent
from apps.common.clock import now
from apps.scheduling.models import Usage
from apps.training.models import (
    Attempt,
    Checkpoint,
    Drill,
    Event,
    LogCursor,
    MetricPoint,
    Preflight,
    Task,
    TaskMedia,
    TaskParameter,
    TraceExport,
    TracePart,
)
from apps.training.services import retention
from apps.training.states import TaskKind, TaskState

pytestmark = [pytest.mark.database, pytest.mark.django_db]

DAYS = 30


@pytest.fixture
def old(task: Task, settings: Any, tmp_path: Path) -> Task:
    """It ended a day longer ago than tasks are kept, and left something of everything."""
    settings.TASKS_KEEP_DAYS = DAYS
    checkpoints = tmp_path / "checkpoints" / task.pk
    for folder in (checkpoints, tmp_path / "logs" / task.pk):
        folder.mkdir(parents=True)
    of = {"task": task, "attempt": 1}
    Event.objects.create(**of, at=now(), kind="state", code="STATE_FAILED")
    MetricPoint.objects.create(**of, rank=0, step=1, at=now(), values={})
    Checkpoint.objects.create(**of, step=1, path=str(checkpoints / "1.pt"), at=now())
    LogCursor.objects.create(**of, rank=0)
    TaskParameter.objects.create(task=task, name="lr", value="0.1", number=0.1, source="wandb")
    TaskMedia.objects.create(**of, rank=0, kind="text", name="a", step=1, path="a", source="wandb", at=now())
    return ended(task, spec={"checkpoint_dir": str(checkpoints)})


def ended(task: Task, days: int = DAYS + 1, **changes: Any) -> Task:
    moment = now() - timedelta(days=days)
    Task.objects.filter(pk=task.pk).update(state=TaskState.FAILED, ended_at=moment, due_at=None, **changes)
    task.refresh_from_db()
    return task


def another(task: Task, key: str, **changes: Any) -> Task:
    other = Task.objects.get(pk=task.pk)
    other.pk, other.spec = key, {}
    for name, value in changes.items():
        setattr(other, name, value)
    other.save(force_insert=True)
    return other


def test_a_task_is_deleted_with_everything_of_its_own(
    old: Task, tmp_path: Path, django_assert_max_num_queries: Any
) -> None:
    with django_assert_max_num_queries(60):
        assert retention.delete_expired_tasks() == 1
    for model in (Task, Attempt, Event, MetricPoint, Checkpoint, LogCursor, TaskParameter, TaskMedia):
        assert not model.objects.exists()
    assert not (tmp_path / "checkpoints" / old.pk).exists()
    assert not (tmp_path / "logs" / old.pk).exists()


def test_automatic_deletion_is_audited_as_the_platforms(old: Task) -> None:
    retention.delete_expired_tasks()
    event = AuditEvent.objects.get()
    assert (event.actor, event.action, event.target, event.project_id) == (None, "task.expire", old.pk, old.project_id)
    assert event.data == {"name": old.name, "days": DAYS}


def test_nothing_is_deleted_unless_configured(old: Task, settings: Any) -> None:
    settings.TASKS_KEEP_DAYS = 0
    assert retention.delete_expired_tasks() == 0
    assert Task.objects.exists()


def test_recent_and_active_tasks_are_kept(old: Task) -> None:
    ended(another(old, "task-new"), days=DAYS - 1)
    another(old, "task-runs", state=TaskState.RUNNING, ended_at=None, due_at=now())
    assert retention.delete_expired_tasks() == 1
    assert set(Task.objects.values_list("pk", flat=True)) == {"task-new", "task-runs"}


def test_environment_costs_stay_in_the_ledger(old: Task) -> None:
    moment = now()
    Usage.objects.create(
        task=old.pk, task_name=old.name, kind=old.kind, project=old.project, owner="reader", environment_name="e",
        zone="z", gpus=8, since=moment, until=moment, training=3600.0,
    )  # fmt: skip
    retention.delete_expired_tasks()
    assert Usage.objects.get().training == 3600.0


def test_checkpoints_used_by_other_tasks_are_kept(old: Task, tmp_path: Path) -> None:
    other = ended(another(old, "task-next"), days=DAYS - 1)
    path = f"{old.spec['checkpoint_dir']}/1.pt"
    Attempt.objects.create(task=other, number=1, master_port=1, created_at=now(), resume_from=path)
    assert retention.delete_expired_tasks() == 0
    assert (tmp_path / "checkpoints" / old.pk).exists()
    other.delete()
    assert retention.delete_expired_tasks() == 1


def test_checkpoints_needed_by_a_waiting_task_are_kept(old: Task) -> None:
    spec = {"resume_from": f"{old.spec['checkpoint_dir']}/1.pt"}
    another(old, "task-w", state=TaskState.QUEUED, ended_at=None, due_at=now(), attempt=0, spec=spec)
    assert retention.delete_expired_tasks() == 0


def test_checkpoints_used_only_by_own_attempts_do_not_keep_a_task(old: Task) -> None:
    path = f"{old.spec['checkpoint_dir']}/1.pt"
    Attempt.objects.create(task=old, number=2, master_port=1, created_at=now(), resume_from=path)
    assert retention.delete_expired_tasks() == 1


def test_preflight_tests_and_drills_of_a_task_are_deleted_with_it(old: Task) -> None:
    young = ended(another(old, "task-young"), days=1)
    for task in (old, young):
        stage = ended(another(old, f"stage-{task.pk}", kind=TaskKind.PREFLIGHT))
        Preflight.objects.create(run=stage, before=task, level="quick")
        drill = ended(another(old, f"drill-{task.pk}", kind=TaskKind.DRILL))
        Drill.objects.create(run=drill, task=task)
    assert retention.delete_expired_tasks() == 1
    kept = {"task-young", "stage-task-young", "drill-task-young"}
    assert set(Task.objects.values_list("pk", flat=True)) == kept


def test_deleting_a_preflight_test_deletes_no_checkpoints(old: Task, tmp_path: Path) -> None:
    """Older ones name the folder of all checkpoints as theirs."""
    ended(old, days=1)
    spec = {"checkpoint_dir": str(tmp_path / "checkpoints")}
    Preflight.objects.create(run=ended(another(old, "stage", kind=TaskKind.PREFLIGHT, spec=spec)), level="quick")
    assert retention.delete_expired_tasks() == 1
    assert (tmp_path / "checkpoints" / old.pk).exists()


def test_a_preflight_test_or_drill_without_a_task_is_deleted(old: Task) -> None:
    Preflight.objects.create(run=ended(another(old, "stage", kind=TaskKind.PREFLIGHT)), level="quick")
    Drill.objects.create(run=ended(another(old, "drill", kind=TaskKind.DRILL)))
    assert retention.delete_expired_tasks() == 3
    assert not Task.objects.exists()


def test_a_running_drill_keeps_its_task(old: Task) -> None:
    run = another(old, "drill", kind=TaskKind.DRILL, state=TaskState.RUNNING, ended_at=None, due_at=now())
    Drill.objects.create(run=run, task=old)
    assert retention.delete_expired_tasks() == 0


def test_an_unsent_trace_keeps_its_task(old: Task) -> None:
    export = TraceExport.objects.create(task=old, attempt=1, part=TracePart.FINISHED, created_at=now(), due_at=now())
    assert retention.delete_expired_tasks() == 0
    export.delete()
    assert retention.delete_expired_tasks() == 1


def test_a_task_that_cannot_be_deleted_does_not_stop_others(
    old: Task, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    ended(another(old, "task-bad", spec={"checkpoint_dir": "/there"}), days=DAYS + 9)
    remove = retention.delete.remove_task

    def stumble(task: Task, *args: Any) -> None:
        if task.pk == "task-bad":
            raise OSError("no such disk")
        remove(task, *args)

    monkeypatch.setattr(retention.delete, "remove_task", stumble)
    assert retention.delete_expired_tasks() == 1
    assert Task.objects.get().pk == "task-bad"
    assert "task-bad stays" in caplog.text


def test_many_tasks_are_deleted_in_rounds(old: Task, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(5):
        ended(another(old, f"task-{number}"))
    monkeypatch.setattr(retention, "BATCH_SIZE", 2)
    monkeypatch.setattr(retention, "MAX_DELETED_PER_ROUND", 4)
    assert retention.delete_expired_tasks() == 4
    assert retention.delete_expired_tasks() == 2
    assert retention.delete_expired_tasks() == 0
