"""Rows that an older release wrote, after what its migrations do with them."""

from importlib import import_module
from typing import Any

import pytest
from django.apps import apps

from apps.training.models import Task
from apps.training.states import TaskKind, TaskState
from fermi.jobs.spec import JobSpec

pytestmark = pytest.mark.database


def by_spec_alone() -> None:
    import_module("apps.training.migrations.0005_task_kind").forwards(apps, None)


def old(task: Task, **changes: Any) -> Task:
    """As before tasks had a kind: what is done later stood in the request."""
    Task.objects.filter(pk=task.pk).update(kind=TaskKind.TRAINING, **changes)
    by_spec_alone()
    task.refresh_from_db()
    return task


def test_an_active_task_keeps_spares_preflight_and_restarts(task: Task) -> None:
    request = {"spareEnvironmentIds": ["env-7", "env-8"], "preflight": "quick", "maxRestarts": 9}
    job = JobSpec.from_json(old(task, request=request, spec={"framework": "jax"}, max_restarts=9).spec)
    assert (job.spares, job.preflight, job.max_restarts) == (("env-7", "env-8"), "quick", 9)
    assert job.framework == "jax"


def test_a_request_without_those_fields_has_none(task: Task) -> None:
    job = JobSpec.from_json(old(task, request={"spareEnvironmentIds": None}).spec)
    assert (job.spares, job.preflight) == ((), "off")


def test_a_preflight_run_is_known_by_its_kind(task: Task) -> None:
    assert old(task, framework="preflight").kind == TaskKind.PREFLIGHT
    assert not Task.trainings.exists()


def test_an_ended_task_is_unchanged(task: Task) -> None:
    ended = old(task, request={"preflight": "full"}, spec={"framework": "jax"}, state=TaskState.FAILED, due_at=None)
    assert ended.spec == {"framework": "jax"}
