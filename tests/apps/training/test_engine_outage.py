"""An engine that cannot be asked, or refuses for now: the task says why at once, and goes on soon after it can be."""

import sys
from collections.abc import Iterator
from datetime import timedelta

import pytest

from apps.accounts.models import Project, User
from apps.clusters import selectors
from apps.clusters.models import AvailabilityZone, Cluster, DevEnvironment
from apps.common.clock import now
from apps.training.core import task_store
from apps.training.core.engine_access import get_backend
from apps.training.models import Task
from apps.training.reconcile import reconciler
from apps.training.states import TaskState
from fermi import messages
from fermi.jobs.spec import Entrypoint, JobSpec
from tests.fakes.kubernetes import FakeCluster, Sleeps
from tests.fakes.kubernetes.errors import webhook_failed
from tests.fakes.kubernetes.fixtures import kubernetes  # noqa: F401
from tests.polling import until

pytestmark = pytest.mark.django_db
SOON = timedelta(seconds=3)


@pytest.fixture
def lab(kubernetes: FakeCluster) -> FakeCluster:  # noqa: F811
    kubernetes.add_node("machine-a")
    kubernetes.script("task-*", Sleeps())
    return kubernetes


@pytest.fixture
def task(lab: FakeCluster, user: User, settings, tmp_path) -> Iterator[Task]:
    """Queued."""
    settings.DATA_DIR = tmp_path / "data"
    project = Project.objects.create(name="p")
    connection = {"kubeconfig": str(lab.kubeconfig), "namespace": lab.namespace, "python": sys.executable}
    cluster = Cluster.objects.create(name="c", backend="kubernetes", connection=connection)
    environment = DevEnvironment.objects.create(
        id="dev", name="dev", project=project, cluster=cluster, zone=AvailabilityZone.objects.create(name="z"),
        gpu_type="A100", gpu_count=1, emulated=True, image="training:1", engine={"node": "machine-a"},
    )  # fmt: skip
    nodes = tuple(selectors.build_nodes([environment]))
    job = JobSpec("task-x", "pytorch-ddp", nodes, "dev", entrypoint=Entrypoint("train.py"), checkpoint_dir="/data/c")
    task = Task.objects.create(
        id="task-x", project=project, owner=user, cluster=cluster, name="t", framework=job.framework, request={},
        state=TaskState.QUEUED, state_since=now(), due_at=now(), created_at=now(), **task_store.build_job_columns(job),
    )  # fmt: skip
    task_store.store_nodes(task, job)
    yield task
    get_backend(cluster).close()


def passed(task: Task) -> Task:
    """After a pass that a hint asked for; the next one is soon."""
    Task.objects.filter(pk=task.pk).update(due_at=now())
    reconciler.reconcile_tasks(task.pk)
    task.refresh_from_db()
    return task


def swept(task: Task) -> Task:
    Task.objects.filter(pk=task.pk).update(due_at=now())
    reconciler.reconcile_due_tasks()
    task.refresh_from_db()
    return task


def until_state(task: Task, state: TaskState) -> None:
    until(lambda: passed(task).state == state, what=state)


def assert_said(task: Task, code: str) -> None:
    assert task.reason == code
    for lang in messages.LANGUAGES:
        assert messages.render_text(code, lang, **task.reason_params)
    assert task.due_at is not None
    assert task.due_at - now() <= SOON, "it goes on soon after the engine does"


def test_a_starting_task_reports_an_unreachable_cluster_and_starts_when_it_is_back(lab, task):
    get_backend(task.cluster).orphans(())  # as in a worker that has asked before
    lab.stop_api()
    assert_said(passed(task), "ENGINE_UNREACHABLE")
    assert "refused" in task.reason_params["why"]
    assert "0x" not in task.reason_params["why"], "the same each time"
    assert_said(swept(task), "ENGINE_UNREACHABLE")
    lab.start_api()
    until_state(task, TaskState.RUNNING)
    assert task.reason == ""


def test_a_worker_that_never_reached_the_cluster_reports_it(lab, task):
    lab.stop_api()
    assert_said(passed(task), "ENGINE_UNREACHABLE")
    lab.start_api()
    until_state(task, TaskState.RUNNING)


def test_an_unresponsive_webhook_is_named_and_waited_for(lab, task):
    lab.faults.refuse("create", "jobs", webhook_failed("mutate.example.com"), times=3)
    assert_said(passed(task), "WEBHOOK_UNAVAILABLE")
    assert "mutate.example.com" in task.reason_params["why"]
    until_state(task, TaskState.RUNNING)


def test_a_running_task_reports_its_cluster_away_and_back(lab, task, monkeypatch):
    until_state(task, TaskState.RUNNING)
    monkeypatch.setattr("fermi.engines.kubernetes.watch.MAX_DOWN_SECONDS", 0.0)
    lab.stop_api()
    until(lambda: swept(task).reason == "ENGINE_UNREACHABLE", what="said")
    assert task.state == TaskState.RUNNING
    lab.start_api()
    until(lambda: swept(task).reason == "", what="taken back")
    assert task.state == TaskState.RUNNING


def test_a_stop_reports_the_cluster_away_and_completes_when_it_is_back(lab, task):
    until_state(task, TaskState.RUNNING)
    lab.stop_api()
    Task.objects.filter(pk=task.pk).update(stop_requested_at=now())
    assert_said(passed(task), "ENGINE_UNREACHABLE")
    assert task.state == TaskState.STOPPING
    lab.start_api()
    until_state(task, TaskState.STOPPED)
    assert task.reason == "STOPPED_BY_USER"
