"""Limits of a project and of its members: who may see and set them, what is wrong with them, what is used of them."""

from typing import Any

import pytest
from django.utils import timezone

from apps.accounts.models import AuditEvent, Project
from apps.clusters.models import DevEnvironment, Lease
from apps.scheduling.models import Limits, Usage
from apps.training import tasks
from apps.training.models import Task
from apps.training.queue import load
from tests.api.conftest import Api
from tests.api.test_tasks_create import changed

PATH = "/projects/project-one/limits"
NONE: dict[str, Any] = {
    "weight": 1, "guaranteedGpus": None, "mostGpus": None, "mostTasks": None, "gpuHours": None, "gpuTypes": [],
    "zones": [], "priorities": [], "longestRunSeconds": None, "userMostGpus": None, "userMostTasks": None,
    "userGpuHours": None, "budget": None, "atBudget": "warn",
}  # fmt: skip

pytestmark = [pytest.mark.database, pytest.mark.usefixtures("environments", "dataset", "model")]


def pick_limits(data: dict[str, Any]) -> dict[str, Any]:
    return {name: data[name] for name in NONE}


def test_an_administrator_sets_all_limits_and_members_read_them(
    admin: Api, owner: Api, viewer: Api, stranger: Api, anonymous: Api
) -> None:
    assert pick_limits(viewer.get(PATH).data) == NONE
    body = {
        "weight": 3, "guaranteedGpus": 4, "mostGpus": 8, "gpuTypes": ["A100"], "zones": ["北京可用区A"],
        "priorities": ["low", "normal"], "budget": 99.999, "atBudget": "refuse",
    }  # fmt: skip
    for api, status in ((owner, 403), (viewer, 403), (stranger, 404), (anonymous, 401)):
        assert api.put(PATH, body).status == status
    made = admin.put(PATH, body).data
    zone = DevEnvironment.objects.get(pk="env-001").zone_id
    assert pick_limits(made) == {**NONE, **body, "zones": [zone], "budget": 100.0}
    assert (made["updatedBy"], made["mayChange"]) == ("admin", True)
    assert pick_limits(viewer.get(PATH).data) == pick_limits(made)
    assert viewer.get(PATH).data["mayChange"] is False
    assert (stranger.get(PATH).status, anonymous.get(PATH).status) == (404, 401)
    assert pick_limits(admin.put(PATH, {"weight": 2}).data) == {**NONE, "weight": 2}, "what is left out is no limit"
    assert [one.data.get("weight") for one in AuditEvent.objects.filter(action="limits.set").order_by("at")] == [3, 2]


def test_all_problems_of_limits_are_reported(admin: Api) -> None:
    wrong = {"guaranteedGpus": 9, "mostGpus": 8, "gpuTypes": ["A1OO"], "zones": ["nowhere"]}
    assert admin.put(PATH, wrong).problems == {
        "guaranteedGpus": "LIMITS_CONTRADICT", "gpuTypes.0": "GPU_TYPE_UNKNOWN", "zones.0": "ZONE_UNKNOWN",
    }  # fmt: skip
    assert admin.put(PATH, {"weight": 0, "mostTasks": -1, "priorities": ["top"]}).status == 400
    assert not Limits.objects.exists()


def test_current_usage_is_shown_next_to_limits(colleague: Api, viewer: Api, project: Project) -> None:
    task = colleague.post("/training-tasks", changed()).data["taskId"]
    DevEnvironment.objects.filter(pk="env-001").update(shared=True)
    for key in ("env-001", "env-002"):
        Lease.objects.create(environment_id=key, holder=task)
    moment = timezone.now()
    Usage.objects.create(
        task="task-gone", task_name="gone", kind="training", project=project, owner="viewer", environment_name="e",
        zone="z", gpus=2, since=moment, until=moment, training=3600.0, per_gpu_hour=5,
    )  # fmt: skip
    gpus = {key: DevEnvironment.objects.get(pk=key).gpu_count for key in ("env-001", "env-002")}
    use = viewer.get(PATH).data["use"]
    assert (use["gpus"], use["sharedGpus"], use["tasks"]) == (sum(gpus.values()), gpus["env-001"], 1)
    assert use["gpuHours"] == pytest.approx(2, abs=0.1)
    assert use["cost"] == 10.0
    by_user = {one["username"]: one for one in viewer.get(f"{PATH}/users").data["items"]}
    assert by_user["colleague"]["use"]["gpus"] == sum(gpus.values())
    used = {"gpus": 0, "tasks": 0, "gpuHours": 2.0, "environments": 0, "environmentGpus": 0}
    assert by_user["viewer"]["use"] == used


def test_a_maintainer_sets_limits_of_members(owner: Api, colleague: Api, stranger: Api, admin: Api) -> None:
    admin.put(PATH, {"userMostGpus": 6})
    where = f"{PATH}/users/colleague"
    assert colleague.put(where, {"mostGpus": 2}).status == 403
    assert stranger.put(where, {"mostGpus": 2}).status == 404
    assert owner.put(f"{PATH}/users/nobody", {"mostGpus": 2}).status == 404
    made = owner.put(where, {"mostGpus": 2, "gpuHours": 10}).data
    assert (made["mostGpus"], made["mostTasks"], made["gpuHours"], made["own"]) == (2, None, 10, True)
    listed = {one["username"]: (one["mostGpus"], one["own"]) for one in colleague.get(f"{PATH}/users").data["items"]}
    assert listed == {"colleague": (2, True), "owner": (6, False)}
    assert colleague.delete(where).status == 403
    assert owner.delete(where).status == 200
    assert owner.delete(where).status == 404
    assert owner.get(f"{PATH}/users", search="coll").data["items"][0]["mostGpus"] == 6


def test_a_budget_warning_is_sent_once_a_month_at_80_percent(
    admin: Api, owner: Api, colleague: Api, stranger: Api, project: Project
) -> None:
    admin.put(PATH, {"budget": 100})
    moment = timezone.now()
    row = Usage.objects.create(
        task="task-gone", task_name="gone", kind="training", project=project, owner="viewer", environment_name="e",
        zone="z", gpus=1, since=moment, until=moment, training=3600.0, per_gpu_hour=79,
    )  # fmt: skip

    def warned() -> int:
        tasks.warn_of_budgets()
        return AuditEvent.objects.filter(action="budget.warned", project=project).count()

    assert warned() == 0
    Usage.objects.filter(pk=row.pk).update(per_gpu_hour=80)
    assert [warned(), warned()] == [1, 1]
    told = {"BUDGET_NEARLY_SPENT"}
    for api, expected in ((admin, told), (owner, told), (colleague, set()), (stranger, set())):
        assert {one["code"] for one in api.get("/notices").data["findings"]} & told == expected
    admin.put(PATH, {"budget": 200})
    assert warned() == 1, "a budget that was raised is not nearly spent"
    assert owner.get("/notices").data["findings"] == []


def test_guarantees_that_exceed_the_fleet_are_reported_to_administrators(admin: Api, owner: Api) -> None:
    admin.put(PATH, {"guaranteedGpus": 1})
    assert "GUARANTEES_TOO_MANY" in {one["code"] for one in admin.get("/notices").data["findings"]}
    assert owner.get("/notices").data["findings"] == []
    DevEnvironment.objects.filter(pk="env-001").update(shared=True)
    assert "GUARANTEES_TOO_MANY" not in {one["code"] for one in admin.get("/notices").data["findings"]}


def test_an_empty_project_is_deleted_with_its_limits(admin: Api) -> None:
    made = admin.post("/projects", {"name": "short"}).data["id"]
    admin.put(f"/projects/{made}/limits", {"mostGpus": 2})
    assert admin.delete(f"/projects/{made}").status == 200
    assert not Limits.objects.exists()


def test_the_queue_follows_changed_limits(admin: Api, colleague: Api, owner: Api) -> None:
    admin.put(PATH, {"weight": 5, "mostTasks": 1, "priorities": ["urgent"]})
    owner.put(f"{PATH}/users/colleague", {"mostTasks": 0})
    moment = timezone.now()
    known = load.load_snapshot(moment).projects["project-one"]
    assert (known.weight, known.most_tasks, known.users["colleague"].most_tasks) == (5.0, 1, 0)
    assert [one.name for one in known.priorities] == ["URGENT"]
    assert not Task.objects.exists()
