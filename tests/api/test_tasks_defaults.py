"""What a request leaves empty is chosen, shown with its reasons, and used."""

import json
from pathlib import Path
from typing import Any

import pytest

from apps.clusters.models import DevEnvironment
from apps.training.models import Task
from tests.api.conftest import Api
from tests.api.test_tasks_create import changed

pytestmark = pytest.mark.usefixtures("environments", "dataset", "model")

FRAMEWORKS = ["pytorch-ddp", "pytorch-fsdp", "deepspeed", "jax"]


def empty(framework: str, **more: Any) -> dict[str, Any]:
    return changed(distributedConfig__framework=framework, distributedConfig__strategy=None, **more)


def preview(api: Api, request: dict[str, Any]) -> dict[str, Any]:
    data: dict[str, Any] = api.post("/training-tasks/preview", request).data
    return data


def what_would_run(shown: dict[str, Any]) -> str:
    """A script reads the strategy and options nowhere but in files, environment and arguments."""
    return json.dumps([shown[name] for name in ("ranks", "files", "artifacts", "command")], sort_keys=True)


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_an_empty_strategy_is_chosen_with_reasons_in_both_languages(colleague: Api, framework: str) -> None:
    proposals = {}
    for colleague.lang in ("zh-CN", "en"):
        proposals[colleague.lang] = proposal = preview(colleague, empty(framework))["proposal"]
        assert proposal["strategy"] == {"dataParallel": 14}
        assert proposal["reasons"]
        assert all("14" in reason["message"] for reason in proposal["reasons"][:1])
    zh, en = proposals["zh-CN"]["reasons"], proposals["en"]["reasons"]
    assert [reason["code"] for reason in zh] == [reason["code"] for reason in en]
    assert [reason["message"] for reason in zh] != [reason["message"] for reason in en]


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_submitting_the_proposed_strategy_gives_the_same_plan(colleague: Api, framework: str) -> None:
    left_empty = preview(colleague, empty(framework))
    proposal = left_empty["proposal"]
    given = empty(framework)
    given["distributedConfig"] |= {"strategy": proposal["strategy"], "options": proposal["options"]}
    as_given = preview(colleague, given)
    assert as_given["problems"] == []
    assert as_given["proposal"] is None, "nothing is left empty"
    assert what_would_run(as_given) == what_would_run(left_empty)


def test_values_set_by_the_user_are_kept_and_not_proposed_again(colleague: Api) -> None:
    request = empty("fsdp", distributedConfig__options={"sharding": "full", "mixedPrecision": "bfloat16"})
    assert preview(colleague, request)["proposal"]["options"] == {}


def test_without_environments_or_with_an_unknown_framework_nothing_is_proposed(colleague: Api) -> None:
    nowhere = empty("ddp", distributedConfig__nodeIds=[])
    assert preview(colleague, nowhere)["proposal"] is None
    assert preview(colleague, empty("caffe"))["proposal"] is None


def test_a_task_keeps_its_chosen_strategy_when_environments_change(colleague: Api) -> None:
    task_id = colleague.post("/training-tasks", empty("fsdp")).data["taskId"]
    DevEnvironment.objects.update(gpu_count=1)
    shown = colleague.get(f"/training-tasks/{task_id}").data
    assert shown["proposal"]["options"]["shardSize"] == 2
    assert shown["request"]["distributedConfig"].get("strategy") is None, "the request stays as it was sent"


def test_the_size_of_a_custom_script_comes_from_its_model(colleague: Api, settings: Any) -> None:
    from apps.catalog.models import Model

    script = Path(settings.DATA_DIR, "workspace", "train.py")
    script.parent.mkdir(parents=True, exist_ok=True)
    script.touch()
    own = empty("deepspeed", entrypoint={"script": str(script)})
    assert preview(colleague, own)["proposal"]["reasons"][1]["code"] == "PROPOSED_STAGE_USUAL"
    Model.objects.update(parameters=60 * 10**9)
    assert preview(colleague, own)["proposal"]["options"]["zeroStage"] == 3
    task_id = colleague.post("/training-tasks", own).data["taskId"]
    assert Task.objects.get(pk=task_id).spec["model_parameters"] == 60 * 10**9


def test_a_refused_value_has_the_nearest_valid_one(colleague: Api) -> None:
    request = empty("fsdp", distributedConfig__options={"shardSize": 8})
    for colleague.lang in ("zh-CN", "en"):
        [problem] = colleague.post("/training-tasks", request).body["errors"]
        assert "14" in problem["message"]
        assert "7" in problem["hint"]


def test_each_node_uses_its_own_interface_unless_the_user_sets_one(colleague: Api, owner: Api) -> None:
    owner.patch("/dev-environments/env-001", {"network": {"interface": "eth0"}})
    owner.patch("/dev-environments/env-003", {"network": {"interface": "bond1", "infiniband": []}})
    ranks = preview(colleague, empty("ddp"))["ranks"]
    by_node = {rank["environmentId"]: rank["env"].get("GLOO_SOCKET_IFNAME") for rank in ranks}
    assert by_node == {"env-001": "eth0", "env-003": "bond1", "env-005": None}
    chosen = preview(colleague, empty("ddp", env={"GLOO_SOCKET_IFNAME": "ib0"}))["ranks"]
    assert {rank["env"]["GLOO_SOCKET_IFNAME"] for rank in chosen} == {"ib0"}


@pytest.mark.parametrize("framework", ["deepspeed", "megatron-lm"])
def test_a_strategy_that_cannot_run_has_the_nearest_that_can(colleague: Api, framework: str) -> None:
    """The document's 2 × 4 × 8, on 14 GPUs."""
    shown = preview(colleague, changed(distributedConfig__framework=framework))
    assert len(shown["splits"]) == 3
    for split in shown["splits"]:
        assert split["tensorParallel"] * split["pipelineParallel"] * split["dataParallel"] == 14
        taken = preview(colleague, changed(distributedConfig__framework=framework, distributedConfig__strategy=split))
        assert taken["splits"] == []
        assert "distributedConfig.strategy" not in {problem["field"] for problem in taken["problems"]}
    assert preview(colleague, empty(framework))["splits"] == []


def test_the_nearest_splits_are_in_the_answer(colleague: Api) -> None:
    answer = colleague.post("/training-tasks", changed(distributedConfig__framework="deepspeed")).data
    [named] = [one for one in answer["warnings"] if one["code"] == "DEEPSPEED_SPLITS_POSSIBLE"]
    assert "tensorParallel=1, pipelineParallel=2, dataParallel=7" in named["message"]
