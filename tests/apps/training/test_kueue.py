"""Where Kueue has the queue: the platform passes on, reads back, keeps to its own limits, and decides nothing else; but
for what runs inside of environments, of which Kueue knows nothing."""

import os
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace

import pytest

from apps.accounts.models import Role
from apps.clusters import selectors
from apps.clusters.models import DevEnvironment, Lease
from apps.common.clock import now
from apps.overview import machines
from apps.overview.scope import Scope
from apps.scheduling.models import Limits
from apps.training.core import release, task_store
from apps.training.core.engine_access import get_backend, resolve_run_locations
from apps.training.models import Task
from apps.training.queue import load
from apps.training.reports import queue
from apps.training.services import actions, pause
from apps.training.states import TaskState
from fermi.engines.kubernetes import positions
from fermi.jobs.spec import Entrypoint, JobSpec
from tests.apps.training.test_engine_outage import lab, passed, task, until_state
from tests.fakes.kubernetes import FakeCluster, Runs
from tests.fakes.kubernetes.fixtures import kubernetes
from tests.polling import until

__all__ = ["kubernetes", "lab", "task"]
pytestmark = [
    pytest.mark.django_db,
    pytest.mark.skipif(not os.environ.get("FERMI_CRDS"), reason="FERMI_CRDS names no folder of definitions"),
]


@pytest.fixture
def kueue(lab: FakeCluster, task: Task, monkeypatch: pytest.MonkeyPatch) -> FakeCluster:
    monkeypatch.setattr(positions, "CACHE_SECONDS", 0.0)
    task.project.memberships.create(user=task.owner, role=Role.MEMBER)
    lab.install("kueue", "visibility")
    lab.add_queue("gpus")
    lab.add_class("express", 1000)
    task.cluster.connection |= {"queue": "gpus", "priority_classes": {"urgent": "express"}}
    task.cluster.save()
    return lab


def another(task: Task, key: str, **changes: object) -> Task:
    """On the same environment."""
    job = replace(JobSpec.from_json(task.spec), task_id=key, **changes)
    made = Task.objects.create(
        id=key,
        project=task.project,
        owner=task.owner,
        cluster=task.cluster,
        name=key,
        framework=job.framework,
        request={},
        state=TaskState.QUEUED,
        state_since=now(),
        due_at=now(),
        created_at=now(),
        **task_store.build_job_columns(job),
    )
    task_store.store_nodes(made, job)
    return made


def place(task: Task) -> int | None:
    passed(task)
    return (queue.explain_queue(task.owner, task)["engine"] or {}).get("position")


def test_tasks_wait_in_kueues_order_and_a_paused_task_leaves_it(kueue: FakeCluster, task: Task) -> None:
    kueue.deny_quota()
    second, urgent = another(task, "task-y"), another(task, "task-z", priority="urgent")
    for one in (task, second, urgent):
        until(lambda one=one: passed(one).reason == "QUEUE_WAITING", what=f"{one} waits in Kueue's queue")
        assert (one.state, one.in_line_at) == (TaskState.STARTING, None), "and not in ours"
    for wanted, one in ((1, urgent), (2, task), (3, second)):
        until(lambda one=one, wanted=wanted: place(one) == wanted, what=f"{one} is number {wanted}")
    pause.pause_task(task.owner, task.pk)
    until(lambda: passed(task).state == TaskState.QUEUED and task.reason == "PAUSED", what="it is paused")
    until(lambda: not [name for name in kueue.names("workloads") if task.pk in name], what="Kueue has forgotten it")
    kueue.admit()
    until_state(second, TaskState.RUNNING)
    assert passed(task).state == TaskState.QUEUED
    pause.resume_task(task.owner, task.pk)
    until_state(task, TaskState.RUNNING)
    assert queue.explain_queue(task.owner, task)["engine"]["position"] is None


@pytest.mark.database
def test_a_project_over_its_limit_submits_nothing(kueue: FakeCluster, task: Task) -> None:
    Limits.objects.create(project=task.project, most_tasks=1, updated_at=now())
    second = another(task, "task-y")
    kueue.deny_quota()
    until(lambda: passed(task).reason == "QUEUE_WAITING", what="the first one waits in Kueue's queue")
    passed(second)
    assert second.reason == "LIMIT_TASKS", "what waits there counts, too"
    kueue.admit()
    until_state(task, TaskState.RUNNING)
    passed(second)
    assert second.reason == "LIMIT_TASKS"
    assert (second.state, second.attempt) == (TaskState.QUEUED, 0)
    assert not [name for name in kueue.names("workloads") if second.pk in name]
    actions.stop_task(task.owner, task.pk)
    until_state(task, TaskState.STOPPED)
    until_state(second, TaskState.RUNNING)


@pytest.fixture
def entered(kueue: FakeCluster, task: Task) -> Iterator[Task]:
    """Its environment `dev` is a pod that can be entered; what its nodes print is followed, as the watcher does."""
    main = {"name": "main", "image": "training:1", "command": ["sleep", "infinity"]}
    kueue.add_pod("dev", {"nodeName": "machine-a", "containers": [main]})
    until(lambda: kueue.pods("dev")[0]["status"].get("phase") == "Running", what="the dev pod runs")
    engine = {"pod": "dev", "container": "main", "node": "machine-a", "inside": {"python": sys.executable}}
    DevEnvironment.objects.filter(pk="dev").update(engine=engine)
    run(task, JobSpec.from_json(task.spec), "dev")
    stop = threading.Event()
    backend = get_backend(task.cluster)
    watcher = threading.Thread(target=backend.watch, args=(stop, lambda _: None))
    watcher.start()
    yield task
    stop.set()
    watcher.join()
    backend.close()


def run(task: Task, job: JobSpec, *environments: str, **changes: object) -> None:
    """Stores what it runs: ranks that go on until they are stopped, in these environments as they are now."""
    rows = DevEnvironment.objects.select_related("zone").in_bulk(environments)
    nodes = tuple(selectors.build_nodes(rows[key] for key in environments))
    script = Entrypoint("-c", ("import time; print('began', flush=True); time.sleep(600)",))
    job = replace(job, task_id=task.pk, nodes=nodes, master=environments[0], entrypoint=script, **changes)
    job, wrong = resolve_run_locations(task.cluster, job)
    assert not wrong
    Task.objects.filter(pk=task.pk).update(**task_store.build_job_columns(job))
    task.refresh_from_db()
    task.nodes.all().delete()
    task_store.store_nodes(task, job)


def holder(task: Task) -> str | None:
    """Who has the environment `dev`, for whoever looks at the fleet."""
    here = machines.list_machines(Scope(task.owner), now())
    return next(one.machine.holder for one in here if one.machine.id == "dev")


def test_tasks_inside_environments_wait_in_our_queue_whatever_kueue_does(kueue: FakeCluster, entered: Task) -> None:
    kueue.deny_quota()
    second = another(entered, "task-y")
    until_state(entered, TaskState.RUNNING)
    assert not [name for name in kueue.names("workloads") if entered.pk in name]
    passed(second)
    assert (second.state, second.reason) == (TaskState.QUEUED, "WAITING_FOR_ENVIRONMENTS")
    assert queue.explain_queue(second.owner, second)["engine"] is None
    assert [(one.task, one.environment.pk) for one in release.list_current_holds(now())] == [(entered.pk, "dev")]
    assert holder(entered) == entered.pk
    actions.stop_task(entered.owner, entered.pk)
    until_state(entered, TaskState.STOPPED)
    until_state(second, TaskState.RUNNING)
    actions.stop_task(second.owner, second.pk)
    until_state(second, TaskState.STOPPED)
    assert not Lease.objects.exists()


@pytest.mark.database
def test_tasks_outside_environments_wait_in_kueue_next_to_tasks_inside(kueue: FakeCluster, entered: Task) -> None:
    beside = another(entered, "task-y")
    run(beside, JobSpec.from_json(beside.spec), "dev", run_in="beside")
    assert not beside.inside
    until_state(entered, TaskState.RUNNING)
    until_state(beside, TaskState.RUNNING)
    held = {one.task: one.environment.pk for one in release.list_current_holds(now())}
    assert held == {entered.pk: "dev", beside.pk: "dev"}
    assert holder(entered) == entered.pk
    for one in (entered, beside):
        actions.stop_task(one.owner, one.pk)
        until_state(one, TaskState.STOPPED)


def test_our_queue_preempts_nothing_that_kueue_started(kueue: FakeCluster, entered: Task) -> None:
    """Although it waits for its environment, and the other one said that it may be preempted."""
    beside = another(entered, "task-y")
    run(beside, JobSpec.from_json(beside.spec), "dev", run_in="beside")
    Task.objects.filter(pk=beside.pk).update(preemptible=True, priority=-1)
    until_state(beside, TaskState.RUNNING)
    assert [one.stays for one in load.load_running_tasks(now())] == [True]
    Task.objects.filter(pk=entered.pk).update(priority=100)
    passed(entered)
    assert (entered.state, entered.reason) == (TaskState.QUEUED, "WAITING_FOR_ENVIRONMENTS")
    beside.refresh_from_db()
    assert beside.preempted_at is None
    actions.stop_task(beside.owner, beside.pk)
    until_state(beside, TaskState.STOPPED)
    until_state(entered, TaskState.RUNNING)
    assert [one.stays for one in load.load_running_tasks(now())] == [False]
    actions.stop_task(entered.owner, entered.pk)
    until_state(entered, TaskState.STOPPED)


def test_a_mixed_task_is_leased_by_us_and_then_admitted_by_kueue(kueue: FakeCluster, entered: Task) -> None:
    dev = DevEnvironment.objects.get(pk="dev")
    DevEnvironment.objects.create(
        id="other", name="other", project=dev.project, cluster=dev.cluster, zone=dev.zone, gpu_type="A100", gpu_count=1,
        emulated=True, image="training:1", engine={"node": "machine-a"},
    )  # fmt: skip
    kueue.script("task-*", Runs())
    kueue.deny_quota()
    second = another(entered, "task-y")
    run(entered, JobSpec.from_json(entered.spec), "dev", "other")
    until(lambda: passed(entered).reason == "QUEUE_WAITING", what="its pod waits in Kueue's queue")
    assert entered.state == TaskState.STARTING
    assert set(Lease.objects.values_list("environment", "holder")) == {("dev", entered.pk), ("other", entered.pk)}
    until(lambda: place(entered) == 1, what="its place is told")
    passed(second)
    assert second.reason == "WAITING_FOR_ENVIRONMENTS"
    kueue.admit()
    until_state(entered, TaskState.RUNNING)
    for one in (entered, second):
        actions.stop_task(one.owner, one.pk)
        until_state(one, TaskState.STOPPED)


def test_the_run_location_decides_which_queue_is_used(kueue: FakeCluster, entered: Task) -> None:
    """As of a task whose environments were made for it: what they hold is known once they run."""
    Task.objects.filter(pk=entered.pk).update(inside=False)
    entered.refresh_from_db()
    until_state(entered, TaskState.RUNNING)
    assert entered.inside
    assert not [name for name in kueue.names("workloads") if entered.pk in name]
    actions.stop_task(entered.owner, entered.pk)
    until_state(entered, TaskState.STOPPED)
