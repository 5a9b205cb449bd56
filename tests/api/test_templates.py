"""Use cases that are ready to be sent, and what helps to choose."""

import pytest
from django.utils import timezone

from apps.clusters.models import DevEnvironment
from apps.training.models import Preflight, Task
from tests.api.conftest import Api
from tests.api.test_tasks_create import changed

pytestmark = pytest.mark.usefixtures("environments", "dataset", "model")


def template(api: Api, key: str) -> dict:
    return api.get(f"/task-templates/{key}").data


def test_use_cases_are_listed_in_order_and_in_the_readers_language(colleague: Api, viewer: Api) -> None:
    items = colleague.get("/task-templates").data["items"]
    assert [item["id"] for item in items] == ["llama2-7b", "bert-large", "gpt3-175b"]
    assert items[0]["advantages"] == ["快速启动", "简单配置", "成本较低"]
    viewer.lang = "en"
    assert template(viewer, "bert-large")["title"] == "Pre-training BERT (medium)"
    assert viewer.get("/task-templates/t5").status == 404


def test_a_use_case_proposes_environments_and_names_missing_ones(colleague: Api) -> None:
    gpt3 = template(colleague, "gpt3-175b")["full"]
    assert gpt3["request"]["distributedConfig"]["nodeIds"] == ["env-005"]
    assert [one["code"] for one in gpt3["missing"]] == ["TEMPLATE_LACKS_NODES"]
    bert = template(colleague, "bert-large")["full"]
    assert bert["request"]["distributedConfig"]["nodeIds"] == ["env-001", "env-002"]
    assert [one["code"] for one in bert["missing"]] == ["TEMPLATE_OTHER_GPUS"]
    DevEnvironment.objects.filter(pk="env-001").update(cordoned=True)
    assert template(colleague, "bert-large")["full"]["request"]["distributedConfig"]["nodeIds"] == ["env-002"]


@pytest.mark.parametrize("key", ["llama2-7b", "bert-large", "gpt3-175b"])
def test_the_small_variant_of_a_use_case_can_be_submitted(colleague: Api, key: str) -> None:
    request = template(colleague, key)["small"]["request"]
    assert colleague.post("/training-tasks/preview", request).data["problems"] == []
    created = colleague.post("/training-tasks", request).data["distributedInfo"]
    assert created["worldSize"] == {"llama2-7b": 2, "bert-large": 4, "gpt3-175b": 4}[key]


def test_users_without_environments_see_what_is_needed(stranger: Api) -> None:
    llama = template(stranger, "llama2-7b")["full"]
    assert llama["request"]["distributedConfig"]["nodeIds"] == []
    assert [one["code"] for one in llama["missing"]] == ["TEMPLATE_LACKS_NODES"]


def test_the_single_machine_framework_needs_exactly_one_environment(colleague: Api) -> None:
    one = changed(distributedConfig__nodeIds=["env-001"], distributedConfig__framework="single")
    one["distributedConfig"].pop("strategy", None)
    assert colleague.post("/training-tasks", one).data["distributedInfo"]["framework"] == "pytorch-ddp"
    several = changed(distributedConfig__framework="single")
    assert colleague.post("/training-tasks", several).problems["distributedConfig.framework"] == "SINGLE_NOT_ALONE"


def test_a_recommendation_shows_the_documents_table_and_the_matching_row(colleague: Api) -> None:
    asked = {"environmentIds": ["env-001", "env-003", "env-005"], "modelParameters": 10**9}
    table = colleague.post("/frameworks/recommend", asked).data["scenes"]
    assert [row["name"] for row in table] == ["小规模实验", "中等训练", "大规模训练", "超大模型", "GPT训练"]
    assert [row["code"] for row in table if row["fits"]] == ["SCENE_LARGE"]
    assert table[0]["frameworks"] == [{"framework": "single", "label": "单机"}]
    assert [one["label"] for one in table[3]["frameworks"]] == ["DeepSpeed", "PyTorch FSDP"]


def test_measurements_between_zones_are_newest_first_and_only_for_readers(
    colleague: Api, stranger: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    def measured(rtt: float, mbps: float | None) -> str:
        nodes = ["env-001", "env-002", "env-003"]
        key = colleague.post("/preflights", {"environmentIds": nodes, "level": "full"}).data["id"]
        pairs = [
            {"from": one, "to": other, "rttMs": rtt, "bandwidthMbps": mbps, "findings": []}
            for one, other in (("env-001", "env-003"), ("env-001", "env-002"))
        ]
        Preflight.objects.filter(pk=key).update(report={"pairs": pairs})
        Task.objects.filter(pk=key).update(state="succeeded", ended_at=timezone.now(), due_at=None)
        return key

    asked = "/preflights/between-zones?environments=env-001&environments=env-002&environments=env-003"
    assert colleague.get(asked).data["items"] == []
    measured(50, 100.0)
    newest = measured(31.5, None)
    [link] = colleague.get(asked).data["items"]
    assert (link["from"], link["to"], link["rttMs"], link["preflightId"]) == ("env-001", "env-003", 31.5, newest)
    assert stranger.get(asked).data["items"] == []
