"""Tasks that start after others have ended: what is accepted, what they wait for, and what becomes of them."""

from pathlib import Path
from typing import Any

import pytest
from django.conf import settings

from apps.clusters.models import Lease
from apps.common.clock import now
from apps.training.core import transitions
from apps.training.models import Checkpoint, Event, Task, TaskPredecessor
from apps.training.reconcile import reconciler
from apps.training.states import TaskState
from tests.api.test_tasks_create import changed

pytestmark = [pytest.mark.database, pytest.mark.usefixtures("environments", "dataset", "model")]

SINGLE = changed(distributedConfig=None, environmentIds=["env-001"])


def create(user: Any, name: str = "first", *after: Any, **more: Any) -> str:
    body = {**SINGLE, "taskName": name, **({"after": list(after)} if after else {}), **more}
    return str(user.post("/training-tasks", body).data["taskId"])


def end(key: str, state: TaskState) -> None:
    """End the task as its own pass would, from running."""
    Task.objects.filter(pk=key).update(state=TaskState.RUNNING, attempt=1)
    task = Task.objects.get(pk=key)
    to = [TaskState.STOPPING, state] if state is TaskState.STOPPED else [state]
    for each in to:
        transitions.change_state(task, each)
    Lease.objects.filter(holder=key).delete()


def advance(key: str) -> Task:
    Task.objects.filter(pk=key).update(due_at=now())
    reconciler.reconcile_tasks(key)
    return Task.objects.get(pk=key)


def save_checkpoint(key: str, step: int, loss: float) -> str:
    path = Path(settings.DATA_DIR, "checkpoints", key, f"step-{step}.pt")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("x", "utf-8")
    Checkpoint.objects.create(
        task_id=key, attempt=1, step=step, path=str(path), size_bytes=1, at=now(), val_loss=loss, is_complete=True
    )
    return str(path)


@pytest.fixture(autouse=True)
def data_folder(settings, tmp_path):
    settings.DATA_DIR = tmp_path


def test_a_task_waits_outside_of_the_queue_until_the_one_before_it_has_ended(colleague):
    first = create(colleague)
    second = create(colleague, "second", {"task": first})
    waiting = advance(second)
    assert (waiting.state, waiting.in_line_at, waiting.deadline_at) == ("queued", None, None)
    assert not Lease.objects.filter(holder=second).exists()
    shown = colleague.get(f"/training-tasks/{second}").data
    assert shown["reason"]["code"] == "WAITS_FOR_TASK"
    assert shown["reason"]["message"] == f"等待任务 first（{first}）成功，它正在准备。"
    assert [(one["taskId"], one["name"], one["status"], one["on"], one["metAt"]) for one in shown["after"]] == [
        (first, "first", "initializing", "succeeded", None)
    ]
    assert colleague.get(f"/training-tasks/{second}/queue").data["reason"]["code"] == "WAITS_FOR_TASK"
    assert colleague.get(f"/training-tasks/{second}/diagnosis").status == 200


def test_it_starts_once_all_have_ended_as_it_needs(colleague):
    first, other = create(colleague), create(colleague, "other")
    second = create(colleague, "second", {"task": first}, {"task": other, "on": "ended"})
    assert advance(second).reason_params["more"] == 1
    end(first, TaskState.SUCCEEDED)
    assert advance(second).reason == "WAITS_FOR_TASK"
    Task.objects.filter(pk=second).update(due_at=now().replace(year=2099))
    end(other, TaskState.STOPPED)
    assert Task.objects.get(pk=second).due_at <= now(), "its end makes the task due"
    started = advance(second)
    assert started.state == "starting"
    assert started.deadline_at is not None
    assert Event.objects.filter(task=second, code="AFTER_MET").count() == 1
    assert all(one["metAt"] for one in colleague.get(f"/training-tasks/{second}").data["after"])


@pytest.mark.parametrize(
    ("on", "state", "then"),
    [
        ("succeeded", TaskState.FAILED, "stopped"),
        ("succeeded", TaskState.STOPPED, "stopped"),
        ("failed", TaskState.SUCCEEDED, "stopped"),
        ("failed", TaskState.STOPPED, "stopped"),
        ("failed", TaskState.FAILED, "starting"),
        ("ended", TaskState.FAILED, "starting"),
    ],
)
def test_it_is_stopped_where_one_ends_in_another_way(colleague, on, state, then):
    first = create(colleague)
    second = create(colleague, "second", {"task": first, "on": on})
    advance(second)
    end(first, state)
    task = advance(second)
    assert task.state == then
    assert (task.reason == "AFTER_NOT_MET") is (then == "stopped")


def test_it_is_stopped_where_the_one_before_it_was_deleted(colleague):
    first = create(colleague)
    second = create(colleague, "second", {"task": first, "on": "ended"})
    advance(second)
    Task.objects.filter(pk=first).delete()
    task = advance(second)
    assert (task.state, task.reason) == ("stopped", "AFTER_NOT_MET")
    assert "已被删除" in colleague.get(f"/training-tasks/{second}").data["reason"]["message"]


@pytest.mark.parametrize(("which", "step"), [("newest", 20), ("best", 10)])
def test_it_is_given_the_checkpoint_and_the_outputs_of_the_first_one(colleague, which, step):
    first = create(colleague)
    saved = {10: save_checkpoint(first, 10, 1.0), 20: save_checkpoint(first, 20, 2.0)}
    second = create(colleague, "second", {"task": first, "checkpoint": which})
    advance(second)
    end(first, TaskState.SUCCEEDED)
    task = advance(second)
    assert task.spec["after_checkpoint"] == saved[step]
    [artifact] = [one for one in task.attempts.get().plan["artifacts"] if "FERMI_AFTER_CHECKPOINT" in str(one)][:1]
    assert saved[step] in str(artifact)
    assert f"outputs/{first}" in str(artifact)


def test_a_task_whose_argument_is_a_checkpoint_fails_where_there_is_none(colleague):
    (Path(settings.DATA_DIR) / "workspace").mkdir()
    (Path(settings.DATA_DIR) / "workspace" / "eval.py").write_text("print(1)")
    first = create(colleague)
    entry = {"script": f"{settings.DATA_DIR}/workspace/eval.py", "args": ["--model={after.checkpoint}"]}
    second = create(colleague, "second", {"task": first}, entrypoint=entry, datasetId=None, datasetVersionId=None)
    advance(second)
    end(first, TaskState.SUCCEEDED)
    task = advance(second)
    assert (task.state, task.reason) == ("failed", "AFTER_CHECKPOINT_MISSING")
    body = {**SINGLE, "entrypoint": entry}
    assert colleague.post("/training-tasks", body).problems["after"] == "AFTER_REQUIRED"


def test_conditions_that_cannot_hold_are_refused_at_once(colleague, stranger, other_project):
    first, ended = create(colleague), create(colleague, "ended")
    end(ended, TaskState.FAILED)
    after = [{"task": first}, {"task": first}, {"task": "task-unknown"}, {"task": ended}]
    refused = colleague.post("/training-tasks", {**SINGLE, "after": after}).problems
    assert {name: code for name, code in refused.items() if name.startswith("after")} == {
        "after.1.task": "AFTER_TWICE", "after.2.task": "AFTER_UNKNOWN", "after.3.on": "AFTER_IMPOSSIBLE",
    }  # fmt: skip
    Task.objects.filter(pk=first).update(project=other_project)
    refused = colleague.post("/training-tasks", {**SINGLE, "after": [{"task": first}]}).problems
    assert refused["after.0.task"] == "AFTER_UNKNOWN", "like one that does not exist"
    many = [{"task": f"task-{number}"} for number in range(21)]
    assert "after" in colleague.post("/training-tasks", {**SINGLE, "after": many}).problems
    assert not TaskPredecessor.objects.exists()


def test_a_task_that_others_wait_for_cannot_be_deleted(colleague):
    first = create(colleague)
    second = create(colleague, "second", {"task": first, "on": "failed"})
    end(first, TaskState.FAILED)
    assert colleague.delete(f"/training-tasks/{first}").error == "TASK_AWAITED"
    colleague.post(f"/training-tasks/{second}/stop")
    assert advance(second).state == "stopped"
    assert colleague.delete(f"/training-tasks/{first}").status == 200


def test_a_retry_and_a_clone_keep_the_conditions_that_can_hold(colleague):
    first, other = create(colleague), create(colleague, "other")
    second = create(colleague, "second", {"task": first}, {"task": other})
    end(first, TaskState.FAILED)
    assert advance(second).reason == "AFTER_NOT_MET"
    cloned = colleague.post(f"/training-tasks/{second}/clone").data["request"]
    assert cloned["after"] == [{"task": other}]
    end(other, TaskState.SUCCEEDED)
    retried = colleague.post(f"/training-tasks/{second}/retry").data["taskId"]
    assert [one["taskId"] for one in colleague.get(f"/training-tasks/{retried}").data["after"]] == [other]
    assert advance(retried).reason != "WAITS_FOR_TASK"


def test_a_stopped_task_waits_for_nothing(colleague):
    first = create(colleague)
    second = create(colleague, "second", {"task": first})
    advance(second)
    assert colleague.post(f"/training-tasks/{second}/stop").status == 200
    assert advance(second).reason == "STOPPED_BY_USER"
