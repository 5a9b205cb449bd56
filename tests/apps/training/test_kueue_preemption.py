"""A task that is preempted on Kubernetes goes on from its checkpoint, and has as many restarts left as before."""

import pytest

from apps.training.models import Checkpoint, Task
from apps.training.states import TaskState
from tests.apps.training.test_engine_outage import lab, passed, task, until_state
from tests.fakes.kubernetes import FakeCluster
from tests.fakes.kubernetes.fixtures import kubernetes
from tests.polling import until

__all__ = ["kubernetes", "lab", "task"]
pytestmark = [pytest.mark.database, pytest.mark.django_db]


def test_a_preempted_task_is_requeued_without_using_a_restart(
    lab: FakeCluster,
    task: Task,
) -> None:
    lab.install("kueue")
    lab.add_queue("gpus")
    task.cluster.connection["queue"] = "gpus"
    task.cluster.save()
    Task.objects.filter(pk=task.pk).update(max_restarts=0)
    until_state(task, TaskState.RUNNING)
    Checkpoint.objects.create(task=task, attempt=1, step=100, path="/data/c/step-100", at=task.state_since)
    for number in (2, 3):
        lab.preempt()
        until(lambda number=number: passed(task).attempt == number, what=f"attempt {number}")
        ended = task.attempts.get(number=number - 1)
        assert ended.outcome == "POD_PREEMPTED"
        until(lambda: passed(task).reason == "QUEUE_WAITING", what="it waits in the queue")
        assert task.state == TaskState.STARTING
        assert task.attempts.get(number=number).resume_from == "/data/c/step-100"
        lab.admit()
        until_state(task, TaskState.RUNNING)
