"""Where Kueue has the queue: the platform passes on, reads back, keeps to its own limits, and decides nothing else."""

import os
from dataclasses import replace

import pytest

from apps.accounts.models import Role
from apps.common.clock import now
from apps.scheduling.models import Limits
from apps.training.ground import storing
from apps.training.models import Task
from apps.training.services import actions, pausing
from apps.training.shown import queue
from apps.training.states import State
from fermi.launch.backends.kubernetes import positions
from fermi.launch.spec import JobSpec
from tests.apps.test_engine_away import lab, passed, task, until_state
from tests.fakes.kubernetes import FakeCluster
from tests.fakes.kubernetes.fixtures import kubernetes
from tests.waiting import until

__all__ = ["kubernetes", "lab", "task"]
pytestmark = [
    pytest.mark.storage, pytest.mark.django_db,
    pytest.mark.skipif(not os.environ.get("FERMI_CRDS"), reason="FERMI_CRDS names no folder of definitions"),
]  # fmt: skip


@pytest.fixture
def kueue(lab: FakeCluster, task: Task, monkeypatch: pytest.MonkeyPatch) -> FakeCluster:
    monkeypatch.setattr(positions, "FRESH_SECONDS", 0.0)
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
        id=key, project=task.project, owner=task.owner, cluster=task.cluster, name=key, framework=job.framework,
        request={}, state=State.QUEUED, state_since=now(), due_at=now(), created_at=now(), **storing.columns(job),
    )  # fmt: skip
    storing.store_nodes(made, job)
    return made


def place(task: Task) -> int | None:
    passed(task)
    return (queue.explained(task.owner, task)["engine"] or {}).get("position")


def test_tasks_wait_in_kueues_order_and_a_paused_one_leaves_it_until_it_is_resumed(
    kueue: FakeCluster, task: Task
) -> None:
    kueue.hold()
    second, urgent = another(task, "task-y"), another(task, "task-z", priority="urgent")
    for one in (task, second, urgent):
        until(lambda one=one: passed(one).reason == "QUEUE_WAITING", what=f"{one} waits in Kueue's queue")
        assert (one.state, one.in_line_at) == (State.STARTING, None), "and not in ours"
    for wanted, one in ((1, urgent), (2, task), (3, second)):
        until(lambda one=one, wanted=wanted: place(one) == wanted, what=f"{one} is number {wanted}")
    pausing.pause(task.owner, task.pk)
    until(lambda: passed(task).state == State.QUEUED and task.reason == "PAUSED", what="it is paused")
    until(lambda: not [name for name in kueue.names("workloads") if task.pk in name], what="Kueue has forgotten it")
    kueue.admit()
    until_state(second, State.RUNNING)
    assert passed(task).state == State.QUEUED
    pausing.resume(task.owner, task.pk)
    until_state(task, State.RUNNING)
    assert queue.explained(task.owner, task)["engine"]["position"] is None


def test_a_project_beyond_its_limit_submits_nothing_to_the_engine(kueue: FakeCluster, task: Task) -> None:
    Limits.objects.create(project=task.project, most_tasks=1, updated_at=now())
    second = another(task, "task-y")
    kueue.hold()
    until(lambda: passed(task).reason == "QUEUE_WAITING", what="the first one waits in Kueue's queue")
    passed(second)
    assert second.reason == "LIMIT_TASKS", "what waits there counts, too"
    kueue.admit()
    until_state(task, State.RUNNING)
    passed(second)
    assert second.reason == "LIMIT_TASKS"
    assert (second.state, second.attempt) == (State.QUEUED, 0)
    assert not [name for name in kueue.names("workloads") if second.pk in name]
    actions.stop(task.owner, task.pk)
    until_state(task, State.STOPPED)
    until_state(second, State.RUNNING)
