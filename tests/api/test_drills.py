"""Drills: who may ask for one, of what, and who may read it. What one shows: tests/apps/training/test_drills.py."""

import re
from typing import Any

import pytest

from apps.training.models import Drill, Task
from apps.training.states import TaskKind
from tests.api.conftest import Api
from tests.api.test_tasks_actions import SINGLE, end

pytestmark = [pytest.mark.database, pytest.mark.usefixtures("environments", "dataset", "model")]
TASKS, DRILLS = "/training-tasks", "/drills"


@pytest.fixture
def task(colleague: Api) -> str:
    return str(colleague.post(TASKS, SINGLE).data["taskId"])


def test_a_drill_is_not_listed_as_a_task_and_does_not_change_its_task(colleague: Api, task: str) -> None:
    answer = colleague.post(DRILLS, {"taskId": task, "minutes": 3})
    assert answer.status == 201
    found = answer.data
    assert (found["status"], found["taskId"], found["stage"], found["minutes"]) == ("queued", task, False, 3)
    assert found["allowedActions"] == ["stop"]
    run, of = Drill.objects.get(pk=found["id"]).run, Task.objects.get(pk=task)
    assert run.kind == TaskKind.DRILL
    assert run.spec["checkpoint_dir"] != of.spec["checkpoint_dir"]
    assert run.spec["checkpoint_dir"].endswith(f"/checkpoints/{found['id']}")
    assert [one["taskId"] for one in colleague.get(TASKS).data["items"]] == [task]
    assert colleague.get(f"{TASKS}/{found['id']}").status == 404
    assert colleague.get(f"{TASKS}/{task}").data["drillId"] == found["id"]
    assert [one["id"] for one in colleague.get(DRILLS, task=task).data["items"]] == [found["id"]]


def test_a_drill_of_a_draft_validates_the_request(colleague: Api) -> None:
    answer = colleague.post(DRILLS, {"request": {**SINGLE, "drillMinutes": 7}})
    assert (answer.status, answer.data["taskId"], answer.data["minutes"]) == (201, None, 7)
    refused = colleague.post(DRILLS, {"request": {**SINGLE, "environmentIds": ["env-none"], "taskName": ""}})
    assert refused.status == 400
    assert {re.split(r"\W", one["field"])[0] for one in refused.body["errors"]} >= {"taskName", "environmentIds"}


@pytest.mark.parametrize("body", [{}, {"taskId": "task-x", "request": SINGLE}])
def test_a_drill_names_exactly_one_of_task_and_request(colleague: Api, body: dict[str, Any]) -> None:
    answer = colleague.post(DRILLS, body)
    assert (answer.status, answer.body["errors"][0]["error"]) == (400, "DRILL_OF_WHAT")


def test_strangers_neither_start_nor_read_drills(colleague: Api, stranger: Api, anonymous: Api, task: str) -> None:
    drill = colleague.post(DRILLS, {"taskId": task}).data["id"]
    assert stranger.post(DRILLS, {"taskId": task}).status == 404
    assert stranger.get(f"{DRILLS}/{drill}").status == 404
    assert stranger.post(f"{DRILLS}/{drill}/stop").status == 404
    assert stranger.get(DRILLS).data["items"] == []
    assert anonymous.get(f"{DRILLS}/{drill}").status == 401


def test_deleting_a_task_deletes_its_ended_drills(colleague: Api, task: str) -> None:
    drill = colleague.post(DRILLS, {"taskId": task}).data["id"]
    end(Task.objects.get(pk=task))
    refused = colleague.delete(f"{TASKS}/{task}")
    assert (refused.status, refused.body["error"]) == (409, "DRILL_UNDER_WAY")
    assert colleague.post(f"{DRILLS}/{drill}/stop").status == 200
    end(Task.objects.get(pk=drill))
    assert colleague.delete(f"{TASKS}/{task}").status in (200, 204)
    assert not Drill.objects.exists()
