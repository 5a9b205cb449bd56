"""Environments that are made for a task: previewed, made with it, used by it alone, and done with afterwards."""

from typing import Any

import pytest

from apps.clusters.models import AvailabilityZone, Cluster, DevEnvironment, EnvironmentStatus
from apps.environments.models import Hosted, Template
from apps.training.models import Task
from apps.training.reconcile import reconciler
from apps.training.states import TaskState
from tests.api.conftest import Api
from tests.api.test_tasks_create import changed

pytestmark = pytest.mark.usefixtures("environments", "dataset", "model")


@pytest.fixture(autouse=True)
def template(cluster: Cluster) -> Template:
    zone = AvailabilityZone.objects.first()
    return Template.objects.create(
        pk="template-1", name="two A100", cluster=cluster, zone=zone, gpu_type="A100", gpu_count=2, emulated=True
    )


def asking(afterwards: str = "delete", **more: Any) -> dict[str, Any]:
    request = changed(**more)
    request.pop("environmentIds", None)
    config = {name: value for name, value in request["distributedConfig"].items() if name in ("enabled", "framework")}
    new = {"template": "template-1", "count": 3, "afterwards": afterwards}
    return {**request, "launchMode": "new", "newEnvironments": new, "distributedConfig": config}


def made_for(task: str) -> list[Hosted]:
    return list(Hosted.objects.filter(task=task).select_related("environment").order_by("environment__name"))


def run_all(task: str) -> None:
    for hosted in made_for(task):
        DevEnvironment.objects.filter(pk=hosted.pk).update(status=EnvironmentStatus.RUNNING, host="h1", ip="127.0.0.1")


def test_a_preview_shows_planned_environments_and_creates_none(colleague: Api) -> None:
    before = DevEnvironment.objects.count()
    preview = colleague.post("/training-tasks/preview", asking()).data
    assert preview["problems"] == []
    assert (preview["worldSize"], preview["nodeCount"]) == (6, 3)
    assert preview["masterNode"] == preview["ranks"][0]["environmentId"]
    assert (DevEnvironment.objects.count(), Hosted.objects.count()) == (before, 0)


def test_tasks_train_in_slurm_allocations_made_for_them(colleague: Api, cluster: Cluster) -> None:
    Cluster.objects.filter(pk=cluster.pk).update(backend="slurm", connection={})
    assert colleague.post("/training-tasks/preview", asking()).data["problems"] == []


def test_planned_environments_are_created_with_the_task_which_waits_for_all(colleague: Api) -> None:
    created = colleague.post("/training-tasks", asking())
    task = created.data["taskId"]
    made = made_for(task)
    assert [one.environment.gpu_count for one in made] == [2, 2, 2]
    reconciler.reconcile_tasks(task)
    shown = colleague.get(f"/training-tasks/{task}").data
    assert (shown["status"], shown["reason"]["code"]) == ("initializing", "ENVIRONMENTS_MAKING")
    assert made[0].environment.name in shown["reason"]["message"]
    assert "正在创建环境" in shown["reason"]["message"]
    run_all(task)
    Task.objects.filter(pk=task).update(due_at=Task.objects.get(pk=task).created_at)
    reconciler.reconcile_tasks(task)
    stored = Task.objects.get(pk=task)
    assert stored.state != TaskState.INITIALIZING
    assert {node["host"] for node in stored.spec["nodes"]} == {"h1"}


@pytest.mark.database
def test_a_planned_environment_that_cannot_start_fails_the_task_and_removes_the_others(colleague: Api) -> None:
    task = colleague.post("/training-tasks", asking()).data["taskId"]
    bad = made_for(task)[1]
    DevEnvironment.objects.filter(pk=bad.pk).update(status=EnvironmentStatus.FAILED)
    Hosted.objects.filter(pk=bad.pk).update(state="failed")
    reconciler.reconcile_tasks(task)
    shown = colleague.get(f"/training-tasks/{task}").data
    assert (shown["status"], shown["reason"]["code"]) == ("failed", "ENVIRONMENT_NOT_MADE")
    assert bad.environment.name in shown["reason"]["message"]
    assert {one.wanted for one in made_for(task)} == {"deleted"}


@pytest.mark.parametrize(("afterwards", "wanted"), [("delete", "deleted"), ("stop", "stopped"), ("keep", "running")])
def test_after_the_task_planned_environments_are_kept_stopped_or_deleted(
    colleague: Api, afterwards: str, wanted: str
) -> None:
    task = colleague.post("/training-tasks", asking(afterwards)).data["taskId"]
    colleague.post(f"/training-tasks/{task}/stop")
    reconciler.reconcile_tasks(task)
    assert Task.objects.get(pk=task).state == TaskState.STOPPED
    assert {(one.wanted, one.afterwards) for one in made_for(task)} == {(wanted, "")}


def test_planned_environments_are_reserved_for_their_task(colleague: Api) -> None:
    task = colleague.post("/training-tasks", asking()).data["taskId"]
    run_all(task)
    ids = [one.pk for one in made_for(task)]
    named = changed(environmentIds=[], distributedConfig__nodeIds=ids, distributedConfig__masterNode=ids[0])
    refused = colleague.post("/training-tasks", named)
    assert set(refused.problems.values()) == {"ENVIRONMENT_MADE_FOR_TASK"}
    DevEnvironment.objects.exclude(pk__in=ids).update(cordoned=True)
    select = {**asking(), "launchMode": "existing", "newEnvironments": None}
    select["distributedConfig"] = {"framework": "pytorch-ddp", "select": {"nodes": 1}}
    preview = colleague.post("/training-tasks/preview", select).data
    assert [one["error"] for one in preview["problems"]] == ["SELECT_IMPOSSIBLE"]


@pytest.mark.parametrize(
    ("change", "problems"),
    [
        ({"newEnvironments": None}, {"newEnvironments": "NEW_ENVIRONMENTS_REQUIRED"}),
        ({"newEnvironments": {"template": "no"}}, {"newEnvironments.template": "TEMPLATE_UNKNOWN"}),
        ({"newEnvironments": {"template": "template-1", "count": 0}}, {"newEnvironments.count": "FIELD_RANGE"}),
        ({"environmentIds": ["env-001"]}, {"environmentIds": "NEW_WITH_NODES"}),
        ({"launchMode": "existing", "environmentIds": ["env-001"]}, {"newEnvironments": "NEW_WITHOUT_MODE"}),
        ({"launchMode": "other"}, {"launchMode": "LAUNCH_MODE_UNKNOWN"}),
    ],
)
def test_contradictory_fields_are_refused(colleague: Api, change: dict[str, Any], problems: dict[str, str]) -> None:
    refused = colleague.post("/training-tasks", {**asking(), **change})
    assert refused.status == 400
    assert problems.items() <= refused.problems.items()
    assert not Hosted.objects.exists()
    assert not Task.objects.exists()


def test_a_drill_creates_no_environments(colleague: Api) -> None:
    refused = colleague.post("/drills", {"request": asking()})
    assert refused.problems["launchMode"] == "DRILL_NEEDS_ENVIRONMENTS"


def test_viewers_and_strangers_create_no_environments(viewer: Api, stranger: Api) -> None:
    assert viewer.post("/training-tasks", asking()).status == 403
    foreign = stranger.post("/training-tasks", {**asking(), "projectId": "project-one"})
    assert foreign.problems["projectId"] == "PROJECT_UNKNOWN"
    assert not Hosted.objects.exists()
