"""Why a task is as it is, over the API; and going on at somebody's word: as before, without a node, with a spare."""

import pytest

from apps.clusters.models import Lease
from apps.training.models import Event, Task
from apps.training.states import State
from tests.api.conftest import Api
from tests.api.test_tasks_create import changed

pytestmark = pytest.mark.usefixtures("environments", "dataset", "model")

NODES = ["env-001", "env-003", "env-005"]
ELASTIC = changed(distributedConfig__elastic={"minNodes": 1, "maxNodes": 3})


def submit(api: Api, request: dict, state: State | None = None, **fields: object) -> str:
    task_id = api.post("/training-tasks", request).data["taskId"]
    if state:
        due = None if state is State.FAILED else Task.objects.get(pk=task_id).due_at
        Task.objects.filter(pk=task_id).update(state=state, due_at=due, **fields)
    return task_id


def test_who_may_look_reads_why_in_ones_own_language(colleague: Api, viewer: Api, stranger: Api) -> None:
    path = f"/training-tasks/{submit(colleague, changed())}/diagnosis"
    found = viewer.get(path).data
    assert set(found) == {"taskId", "status", "healthy", "summary", "findings"}
    assert (found["status"], found["healthy"], found["findings"]) == ("initializing", True, [])
    assert "正在准备" in found["summary"]
    viewer.lang = "en"
    assert "being prepared" in viewer.get(path).data["summary"]
    assert stranger.get(path).error == "NOT_FOUND"
    assert Api().get(path).error == "NOT_AUTHENTICATED"


def test_a_running_task_goes_on_by_its_next_attempt_and_asking_again_changes_nothing(
    colleague: Api, viewer: Api
) -> None:
    task_id = submit(colleague, changed())
    path = f"/training-tasks/{task_id}/restart"
    assert viewer.post(path).error == "FORBIDDEN"
    assert colleague.post(path).problems == {"": "RESTART_NEEDS_RUNNING"}
    Task.objects.filter(pk=task_id).update(state=State.RUNNING)
    for _ in range(2):
        assert colleague.post(path).data["taskId"] == task_id
    assert Task.objects.get(pk=task_id).resize_requested_at is not None
    assert Event.objects.filter(task=task_id, code="RESTART_REQUESTED").count() == 1


def test_a_running_task_that_is_not_elastic_does_not_leave_a_node_out(colleague: Api) -> None:
    path = f"/training-tasks/{submit(colleague, changed(), State.RUNNING)}/restart"
    assert colleague.post(path, {"leaveOut": ["env-003"]}).problems == {"": "LEAVING_NEEDS_ELASTIC"}
    assert colleague.post(path, {"leaveOut": ["env-004"]}).problems == {"leaveOut": "NODE_NOT_OF_TASK"}
    assert colleague.post(path, {"leaveOut": ["env-003"], "useSpares": True}).problems == {"": "NO_SPARE_FREE"}


def test_an_elastic_task_leaves_a_node_out_and_keeps_enough(colleague: Api) -> None:
    task_id = submit(colleague, ELASTIC, State.RUNNING)
    path = f"/training-tasks/{task_id}/restart"
    assert colleague.post(path, {"leaveOut": NODES}).problems == {"": "TOO_FEW_LEFT"}
    shown = colleague.post(path, {"leaveOut": ["env-003"]}).data
    away = {node["name"]: node["status"] for node in shown["elastic"]["away"]}
    assert (shown["taskId"], shown["elastic"]["resizing"], away) == (task_id, True, {})
    assert Task.objects.get(pk=task_id).spec["left_out"] == ["env-003"]


def test_a_spare_is_held_for_the_task_from_the_moment_that_it_is_asked_for(colleague: Api) -> None:
    nodes = changed(environmentIds=NODES[:2], distributedConfig__nodeIds=NODES[:2], spareEnvironmentIds=["env-005"])
    task_id = submit(colleague, nodes, State.RUNNING)
    colleague.post(f"/training-tasks/{task_id}/restart", {"leaveOut": ["env-003"], "useSpares": True})
    assert Lease.objects.get(environment="env-005").holder == task_id


def test_a_task_that_has_ended_goes_on_as_a_new_one_without_the_node(colleague: Api) -> None:
    task_id = submit(colleague, changed(), State.FAILED)
    master = Task.objects.get(pk=task_id).master
    found = colleague.post(f"/training-tasks/{task_id}/restart", {"leaveOut": [master]}).data
    assert found["taskId"] != task_id
    assert sorted(node["environmentId"] for node in found["nodes"]) == sorted({*NODES} - {master})
    assert found["masterNode"] != master
