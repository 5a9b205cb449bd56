"""Elastic tasks over the API: what is accepted, refused and shown, and who may have one grow."""

import pytest

from apps.clusters.models import DevEnvironment
from apps.training.models import Task
from apps.training.states import TaskState
from tests.api.conftest import Api
from tests.api.test_tasks_create import changed

pytestmark = pytest.mark.usefixtures("environments", "dataset", "model")

ELASTIC = changed(distributedConfig__elastic={"minNodes": 1, "maxNodes": 3})


def test_a_task_shows_its_sizes_and_its_constant_batch(colleague: Api) -> None:
    task_id = colleague.post("/training-tasks", ELASTIC).data["taskId"]
    shown = colleague.get(f"/training-tasks/{task_id}").data
    assert shown["elastic"] == {
        "minNodes": 1, "maxNodes": 3, "nodes": 3, "sizes": [1, 2, 3], "globalBatchSize": 8 * 14, "accumulationSteps": 1,
        "largest": 3, "resizing": False, "away": [],
    }  # fmt: skip
    assert colleague.post(f"/training-tasks/{task_id}/clone").data["request"]["distributedConfig"]["elastic"] == {
        "minNodes": 1, "maxNodes": 3,
    }  # fmt: skip


def test_the_preview_shows_each_ranks_share_of_the_batch(colleague: Api) -> None:
    preview = colleague.post("/training-tasks/preview", ELASTIC).data
    env = preview["ranks"][0]["env"]
    assert {name: env[name] for name in env if name.endswith(("BATCH_SIZE", "_STEPS", "FULL_WORLD_SIZE"))} == {
        "FERMI_GLOBAL_BATCH_SIZE": "112", "FERMI_LOCAL_BATCH_SIZE": "8", "FERMI_ACCUMULATION_STEPS": "1",
        "FERMI_FULL_WORLD_SIZE": "14",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("elastic", "problems"),
    [
        ({"minNodes": 0}, {"minNodes": "FIELD_RANGE"}),
        ({"minNodes": 2, "maxNodes": 4}, {"maxNodes": "ELASTIC_MAX_TOO_LARGE"}),
        ({"minNodes": 3, "maxNodes": 2}, {"minNodes": "ELASTIC_MIN_ABOVE_MAX"}),
        ({"least": 3}, {"least": "UNKNOWN_FIELD"}),
    ],
)
def test_invalid_elastic_settings_are_refused_by_field(colleague: Api, elastic: dict, problems: dict[str, str]) -> None:
    request = changed(distributedConfig__elastic=elastic)
    prefix = "distributedConfig.elastic."
    assert colleague.post("/training-tasks", request).problems == {prefix + name: why for name, why in problems.items()}


def test_only_members_grow_a_running_task(colleague: Api, viewer: Api) -> None:
    DevEnvironment.objects.filter(pk="env-005").update(cordoned=False)
    task_id = colleague.post("/training-tasks", {**ELASTIC, "distributedConfig": {
        **ELASTIC["distributedConfig"], "elastic": {"minNodes": 1, "maxNodes": 2}}}).data["taskId"]  # fmt: skip
    assert colleague.get(f"/training-tasks/{task_id}").data["nodeCount"] == 2
    assert colleague.post(f"/training-tasks/{task_id}/grow").status == 409
    Task.objects.filter(pk=task_id).update(state=TaskState.RUNNING)
    assert viewer.post(f"/training-tasks/{task_id}/grow").status == 403
    refused = colleague.post(f"/training-tasks/{task_id}/grow")
    assert (refused.status, refused.problems) == (409, {"": "NOTHING_TO_GROW"})
    single = colleague.post("/training-tasks", changed(distributedConfig=None, environmentIds=["env-001"])).data
    assert colleague.post(f"/training-tasks/{single['taskId']}/grow").problems == {"": "NOT_ELASTIC"}
