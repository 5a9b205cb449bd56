"""Capacity in place of environments: what is chosen, previewed, refused, and whose task it is."""

from typing import Any

import pytest

from apps.accounts.models import Membership, Project
from apps.clusters.models import Cluster, DevEnvironment, Lease
from apps.common.clock import now
from apps.training.models import Node, Task
from apps.training.reconcile import reconciler
from tests.api.conftest import Api
from tests.api.test_tasks_create import changed

pytestmark = [pytest.mark.database, pytest.mark.usefixtures("environments", "dataset", "model")]


def asking(select: dict[str, Any], **more: Any) -> dict[str, Any]:
    request = changed(**more)
    request.pop("environmentIds", None)
    config = {
        name: value for name, value in request["distributedConfig"].items() if name not in ("nodeIds", "masterNode")
    }
    return {**request, "distributedConfig": {**config, "select": select}}


def test_fourteen_gpus_of_any_sizes_are_previewed(colleague: Api) -> None:
    preview = colleague.post("/training-tasks/preview", asking({"totalGpus": 14})).data
    assert preview["problems"] == []
    assert (preview["worldSize"], preview["chosen"]["startsNow"], preview["chosen"]["number"]) == (14, True, 1)
    biggest = DevEnvironment.objects.filter(pk__in=preview["chosen"]["nodeIds"]).order_by("-gpu_count").first()
    assert biggest is not None
    assert preview["chosen"]["masterNode"] == biggest.pk == preview["masterNode"]


def test_a_task_gets_environments_when_it_is_scheduled(colleague: Api) -> None:
    task_id = colleague.post("/training-tasks", asking({"nodes": 2, "gpusPerNode": 2})).data["taskId"]
    shown = colleague.get(f"/training-tasks/{task_id}").data
    assert (shown["nodes"], shown["ranks"], shown["worldSize"]) == ([], [], 4)
    assert shown["select"] == {"nodes": 2, "gpusPerNode": 2}
    assert not Node.objects.filter(task=task_id).exists()
    reconciler.reconcile_tasks(task_id)
    held = set(Lease.objects.filter(holder=task_id).values_list("environment_id", flat=True))
    shown = colleague.get(f"/training-tasks/{task_id}").data
    assert {node["environmentId"] for node in shown["nodes"]} == held
    assert [node["processes"] for node in shown["nodes"]] == [2, 2]
    assert "ENVIRONMENTS_CHOSEN" in {event["code"] for event in colleague.get(
        f"/training-tasks/{task_id}/events").data["items"]}  # fmt: skip


def test_a_machine_without_gpus_is_chosen_only_as_a_last_resort(colleague: Api, cluster: Cluster) -> None:
    DevEnvironment.objects.filter(pk="env-001").update(gpu_count=0, gpu_type="")
    chosen = colleague.post("/training-tasks/preview", asking({})).data["chosen"]
    assert "env-001" not in chosen["nodeIds"]
    assert chosen["startsNow"]
    assert "CHOSEN_ON_GPUS" in [reason["code"] for reason in chosen["reasons"]]
    on_gpus = DevEnvironment.objects.exclude(pk="env-001")
    for key in on_gpus.values_list("pk", flat=True):
        Lease.objects.create(environment_id=key, holder="task-other", since=now())
    task_id = colleague.post("/training-tasks", asking({})).data["taskId"]
    reconciler.reconcile_tasks(task_id)
    waits = colleague.get(f"/training-tasks/{task_id}").data
    assert (waits["status"], waits["reason"]["code"]) == ("queued", "WAITING_FOR_CAPACITY"), "none trains without GPUs"
    assert "GPU" in waits["reason"]["message"]
    on_gpus.update(cordoned=True)
    assert colleague.post("/training-tasks/preview", asking({})).data["chosen"]["nodeIds"] == ["env-001"]


@pytest.mark.parametrize(
    ("select", "problems"),
    [
        ({"nodes": 0}, {"distributedConfig.select.nodes": "FIELD_RANGE"}),
        ({"gpusPerNode": 2, "totalGpus": 4}, {"distributedConfig.select": "SELECT_GPUS_TWICE"}),
        ({"nodes": 2, "gpuTypes": ["none of these"]}, {"distributedConfig.select": "SELECT_IMPOSSIBLE"}),
        ({"cores": 2}, {"distributedConfig.select.cores": "UNKNOWN_FIELD"}),
    ],
)
def test_an_invalid_selection_is_refused_by_field(
    colleague: Api, select: dict[str, Any], problems: dict[str, str]
) -> None:
    refused = colleague.post("/training-tasks", asking(select))
    assert (refused.status, refused.problems) == (400, problems)
    assert not Task.objects.exists()


def test_selection_and_named_environments_exclude_each_other(colleague: Api) -> None:
    both = changed(distributedConfig__select={"nodes": 1}, distributedConfig__masterNode="")
    assert colleague.post("/training-tasks", both).problems == {"distributedConfig.select": "SELECT_WITH_NODES"}


def test_a_shared_environment_serves_tasks_of_any_project(stranger: Api, owner: Api) -> None:
    own = Project.objects.get(memberships__user=stranger.user)
    assert stranger.get("/dev-environments").data["items"] == []
    owner.patch("/dev-environments/env-001", {"shared": True, "labels": {"rack": "r1"}})
    assert stranger.get("/dev-environments").ids == ["env-001"]
    request = asking({"nodes": 1, "labels": {"rack": "r1"}})
    created = stranger.post("/training-tasks", request)
    assert Task.objects.get(pk=created.data["taskId"]).project == own
    named = changed(environmentIds=["env-001"], distributedConfig__nodeIds=["env-001"],
                    distributedConfig__masterNode="env-001")  # fmt: skip
    assert stranger.post("/training-tasks/preview", named).data["problems"] == []
    refused = stranger.patch("/dev-environments/env-001", {"shared": False})
    assert refused.status in (403, 404), "its own project manages it"


def test_the_project_must_be_named_where_it_is_ambiguous(colleague: Api) -> None:
    second = Project.objects.create(name="second")
    Membership.objects.create(project=second, user=colleague.user, role="member")
    request = asking({"nodes": 1})
    assert colleague.post("/training-tasks", request).problems["projectId"] == "PROJECT_REQUIRED"
    first = Project.objects.exclude(pk=second.pk).get(memberships__user=colleague.user)
    assert colleague.post("/training-tasks", {**request, "projectId": first.pk}).status == 201
    assert colleague.post("/training-tasks", {**request, "projectId": "project-x"}).problems == {
        "projectId": "PROJECT_UNKNOWN"
    }


def test_only_members_pause_and_resume_active_tasks(colleague: Api, viewer: Api, stranger: Api) -> None:
    task_id = colleague.post("/training-tasks", changed()).data["taskId"]
    assert viewer.post(f"/training-tasks/{task_id}/pause").status == 403
    assert stranger.post(f"/training-tasks/{task_id}/pause").status == 404
    paused = colleague.post(f"/training-tasks/{task_id}/pause").data
    assert (paused["paused"], "resume" in paused["allowedActions"]) == (True, True)
    reconciler.reconcile_tasks(task_id)
    shown = colleague.get(f"/training-tasks/{task_id}").data
    assert (shown["status"], shown["reason"]["code"]) == ("queued", "PAUSED")
    assert not Lease.objects.exists()
    resumed = colleague.post(f"/training-tasks/{task_id}/resume").data
    assert (resumed["paused"], "pause" in resumed["allowedActions"]) == (False, True)
    Task.objects.filter(pk=task_id).update(state="succeeded", due_at=None)
    assert colleague.post(f"/training-tasks/{task_id}/pause").error == "PAUSE_NEEDS_ACTIVE"
    assert colleague.post(f"/training-tasks/{task_id}/resume").error == "RESUME_NEEDS_PAUSED"
