"""Ranks that hang although all others ended with 0, on a node of their own: seen by runners, judged by the platform."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from apps.accounts.models import Project, User
from apps.clusters import selectors
from apps.clusters.models import AvailabilityZone, Cluster, DevEnvironment, Lease
from apps.common.clock import now
from apps.training.core import task_store
from apps.training.models import Task
from apps.training.reconcile import reconciler
from apps.training.states import FINAL_STATES, TaskState
from fermi import messages
from fermi.engines import failure_cause
from fermi.engines.local import engine
from fermi.jobs.spec import Entrypoint, JobSpec, Rendered
from tests.platform_process import free_port
from tests.polling import until

pytestmark = [pytest.mark.database, pytest.mark.django_db(transaction=True)]

BOUND = 1.0
HANGS = """
import os, signal, sys
if os.environ["RANK"] not in sys.argv[1:]:
    sys.exit(0)
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
signal.sigwait([signal.SIGUSR2])
"""


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runners and platform wait for less long."""
    render = engine.render

    def quick(*asked: Any, **more: Any) -> Rendered:
        rendered = render(*asked, **more)
        artifacts = [
            dataclasses.replace(one, content={**one.content, "last_seconds": BOUND}) if one.kind == "node" else one
            for one in rendered.artifacts
        ]
        return dataclasses.replace(rendered, artifacts=tuple(artifacts))

    monkeypatch.setattr(engine, "render", quick)
    monkeypatch.setattr(failure_cause, "MAX_IDLE_SECONDS", BOUND)


@pytest.fixture
def task(user: User, settings: Any, tmp_path: Path) -> Task:
    """On two nodes of this machine: ranks 0, and 1 and 2."""
    settings.DATA_DIR = tmp_path
    (tmp_path / "workspace").mkdir()
    (tmp_path / "workspace" / "hangs.py").write_text(HANGS)
    project, cluster = Project.objects.create(name="p"), Cluster.objects.create(name="c", backend="local")
    zone = AvailabilityZone.objects.create(name="z")
    environments = [
        DevEnvironment.objects.create(
            id=f"env-{gpus}", name=f"gn{gpus}", project=project, cluster=cluster, zone=zone, gpu_type="A100",
            gpu_count=gpus, emulated=True,
        )
        for gpus in (1, 2)
    ]  # fmt: skip
    job = JobSpec(
        "task-x", "pytorch-ddp", tuple(selectors.build_nodes(environments)), "env-1", master_port=free_port(),
        entrypoint=Entrypoint("hangs.py"), checkpoint_dir=str(tmp_path), env={"PYTHONHASHSEED": "0"}, max_restarts=0,
    )  # fmt: skip
    task = Task.objects.create(
        id="task-x", project=project, owner=user, cluster=cluster, name="t", framework=job.framework, request={},
        state=TaskState.QUEUED, state_since=now(), due_at=now(), created_at=now(), **task_store.build_job_columns(job),
    )  # fmt: skip
    task_store.store_nodes(task, job)
    return task


def lives(task: Task, *hanging: str) -> Task:
    """To its end."""
    task.spec["entrypoint"]["args"] = list(hanging)
    task.save()

    def is_over() -> bool:
        Task.objects.exclude(state__in=FINAL_STATES).update(due_at=now(), claimed_at=None)
        reconciler.reconcile_tasks(task.pk)
        task.refresh_from_db()
        return task.state in FINAL_STATES

    until(is_over, seconds=120, what="the task is over")
    assert not Lease.objects.exists()
    assert engine.list_running_attempts(task.spec["checkpoint_dir"]) == []
    return task


def test_a_node_that_hangs_after_all_others_succeeded_is_ended_and_named(task: Task) -> None:
    over = lives(task, "1", "2")
    assert (over.state, over.reason) == (TaskState.SUCCEEDED, "COMPLETED_AND_KILLED")
    said, _ = messages.render_text(over.reason, "en", **over.reason_params)
    assert "Rank 1, 2 on gn2 did nothing" in said


def test_a_hanging_rank_0_fails_the_task(task: Task) -> None:
    over = lives(task, "0")
    assert (over.state, over.reason) == (TaskState.FAILED, "NEVER_ENDED")
    said, _ = messages.render_text(over.reason, "en", **over.reason_params)
    assert said.startswith("Rank 0 on gn1 showed no activity")
