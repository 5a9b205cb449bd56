"""Why a task is as it is, over the API; and going on at somebody's word: as before, without a node, with a spare."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from apps.clusters.models import Lease
from apps.common.clock import now
from apps.training.models import Checkpoint, Event, Task
from apps.training.states import TaskState
from tests.api.conftest import Api
from tests.api.test_tasks_create import changed

pytestmark = [pytest.mark.database, pytest.mark.usefixtures("environments", "dataset", "model")]

NODES = ["env-001", "env-003", "env-005"]
ELASTIC = changed(distributedConfig__elastic={"minNodes": 1, "maxNodes": 3})


def submit(api: Api, request: dict, state: TaskState | None = None, **fields: object) -> str:
    task_id = api.post("/training-tasks", request).data["taskId"]
    if state:
        due = None if state is TaskState.FAILED else Task.objects.get(pk=task_id).due_at
        Task.objects.filter(pk=task_id).update(state=state, due_at=due, **fields)
    return task_id


def test_readers_get_the_diagnosis_in_their_language(colleague: Api, viewer: Api, stranger: Api) -> None:
    path = f"/training-tasks/{submit(colleague, changed())}/diagnosis"
    found = viewer.get(path).data
    assert set(found) == {"taskId", "status", "healthy", "summary", "findings", "resumePoint"}
    assert (found["status"], found["healthy"], found["findings"]) == ("initializing", True, [])
    assert found["resumePoint"] is None, "nothing was trained"
    assert "正在准备" in found["summary"]
    viewer.lang = "en"
    assert "in preparation" in viewer.get(path).data["summary"]
    assert stranger.get(path).error == "NOT_FOUND"
    assert Api().get(path).error == "NOT_AUTHENTICATED"


def trained(api: Api, state: TaskState, step: int | None = 2101) -> Task:
    """A task in whose first attempt so many steps were printed."""
    progress = {} if step is None else {"step": step}
    return Task.objects.get(pk=submit(api, changed(), state, attempt=1, progress=progress))


def save(task: Task, settings: Any, step: int = 2000) -> Path:
    path = Path(settings.DATA_DIR, "checkpoints", task.pk, f"{step}.pt")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"weights")
    at = now() - timedelta(minutes=4)
    Checkpoint.objects.create(task=task, attempt=1, step=step, path=str(path), at=at)
    return path


def point_of(api: Api, task: Task) -> tuple[dict[str, Any], dict[str, str]]:
    """And the hints of what may be done, by code."""
    found = api.get(f"/training-tasks/{task.pk}/diagnosis").data
    actions = [action for finding in found["findings"] for action in finding["actions"]]
    return found["resumePoint"], {action["code"]: f"{action['label']}: {action['hint']}" for action in actions}


@pytest.mark.parametrize("state", [TaskState.RUNNING, TaskState.STOPPED, TaskState.FAILED])
def test_a_diagnosis_shows_step_and_age_of_the_newest_checkpoint_and_lost_steps(
    colleague: Api, settings: Any, tmp_path: Path, state: TaskState
) -> None:
    settings.DATA_DIR, colleague.lang = tmp_path, "en"
    task = trained(colleague, state)
    Task.objects.filter(pk=task.pk).update(
        reason={TaskState.STOPPED: "STOPPED_BY_USER", TaskState.FAILED: "RUN_TIMEOUT"}.get(state, "")
    )
    path = save(task, settings)
    point, hints = point_of(colleague, task)
    assert (point["step"], point["attempt"], point["path"], point["stepsLost"]) == (2000, 1, str(path), 101)
    for part in ("step 2,000", "4 min ago", "101 steps"):
        assert part in point["message"]
    assert ("when asked to end" in point["message"]) == (state is TaskState.RUNNING)
    path.unlink()  # scripts remove old ones
    point, hints = point_of(colleague, task)
    assert (point["step"], point["savedAt"], point["path"], point["stepsLost"]) == (None, None, "", 2101)
    assert "No checkpoint is known: 2,101 steps will be lost" in point["message"]
    if state is TaskState.STOPPED:
        assert hints["RESTART_FROM_CHECKPOINT"].startswith("Restart: ")
        assert point["message"] in hints["RESTART_FROM_CHECKPOINT"]


def test_an_action_shows_the_step_it_resumes_from(colleague: Api, settings: Any, tmp_path: Path) -> None:
    settings.DATA_DIR, colleague.lang = tmp_path, "en"
    task = trained(colleague, TaskState.STOPPED, step=2000)
    Task.objects.filter(pk=task.pk).update(reason="STOPPED_BY_USER")
    save(task, settings)
    point, hints = point_of(colleague, task)
    assert hints["RESTART_FROM_CHECKPOINT"].startswith("Continue from step 2,000: ")
    assert (point["stepsLost"], "steps since then" in point["message"]) == (0, False)
    colleague.lang = "zh-CN"
    assert "第 2,000 步" in point_of(colleague, task)[0]["message"]


def test_without_a_step_no_lost_steps_are_shown(colleague: Api, viewer: Api) -> None:
    task = trained(colleague, TaskState.RUNNING, step=None)
    viewer.lang = "en"
    point, _ = point_of(viewer, task)
    assert (point["stepsLost"], point["message"]) == (
        None, "No checkpoint of the task is known: training starts where the task started."
    )  # fmt: skip
    Task.objects.filter(pk=task.pk).update(state=TaskState.SUCCEEDED, due_at=None)
    assert point_of(viewer, task)[0] is None


def test_restarting_a_running_task_is_idempotent(colleague: Api, viewer: Api) -> None:
    task_id = submit(colleague, changed())
    path = f"/training-tasks/{task_id}/restart"
    assert viewer.post(path).error == "FORBIDDEN"
    assert colleague.post(path).problems == {"": "RESTART_NEEDS_RUNNING"}
    Task.objects.filter(pk=task_id).update(state=TaskState.RUNNING)
    for _ in range(2):
        assert colleague.post(path).data["taskId"] == task_id
    assert Task.objects.get(pk=task_id).resize_requested_at is not None
    assert Event.objects.filter(task=task_id, code="RESTART_REQUESTED").count() == 1


def test_a_task_that_is_not_elastic_cannot_drop_a_node(colleague: Api) -> None:
    path = f"/training-tasks/{submit(colleague, changed(), TaskState.RUNNING)}/restart"
    assert colleague.post(path, {"leaveOut": ["env-003"]}).problems == {"": "LEAVING_NEEDS_ELASTIC"}
    assert colleague.post(path, {"leaveOut": ["env-004"]}).problems == {"leaveOut": "NODE_NOT_OF_TASK"}
    assert colleague.post(path, {"leaveOut": ["env-003"], "useSpares": True}).problems == {"": "NO_SPARE_FREE"}


def test_an_elastic_task_drops_a_node_down_to_its_minimum(colleague: Api) -> None:
    task_id = submit(colleague, ELASTIC, TaskState.RUNNING)
    path = f"/training-tasks/{task_id}/restart"
    assert colleague.post(path, {"leaveOut": NODES}).problems == {"": "TOO_FEW_LEFT"}
    shown = colleague.post(path, {"leaveOut": ["env-003"]}).data
    away = {node["name"]: node["status"] for node in shown["elastic"]["away"]}
    assert (shown["taskId"], shown["elastic"]["resizing"], away) == (task_id, True, {})
    assert Task.objects.get(pk=task_id).spec["left_out"] == ["env-003"]


def test_a_requested_spare_is_leased_at_once(colleague: Api) -> None:
    nodes = changed(environmentIds=NODES[:2], distributedConfig__nodeIds=NODES[:2], spareEnvironmentIds=["env-005"])
    task_id = submit(colleague, nodes, TaskState.RUNNING)
    colleague.post(f"/training-tasks/{task_id}/restart", {"leaveOut": ["env-003"], "useSpares": True})
    assert Lease.objects.get(environment="env-005").holder == task_id


def test_restarting_an_ended_task_without_a_node_creates_a_new_task(colleague: Api) -> None:
    task_id = submit(colleague, changed(), TaskState.FAILED)
    master = Task.objects.get(pk=task_id).master
    found = colleague.post(f"/training-tasks/{task_id}/restart", {"leaveOut": [master]}).data
    assert found["taskId"] != task_id
    assert sorted(node["environmentId"] for node in found["nodes"]) == sorted({*NODES} - {master})
    assert found["masterNode"] != master
