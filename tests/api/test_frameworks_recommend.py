"""Which framework is recommended for which model on which environments, and to whom."""

from typing import Any

import pytest

from apps.accounts.models import Project
from apps.catalog.models import Model
from apps.clusters.models import DevEnvironment
from tests.api.conftest import Answer, Api

pytestmark = [pytest.mark.database, pytest.mark.usefixtures("environments", "model")]

RECOMMEND = "/frameworks/recommend"
ALL = ["env-001", "env-003", "env-005"]  # 2 + 4 + 8 A100 in three zones


def request_recommendation(
    api: Api, parameters: int | None = None, environments: list[str] | None = None, **more: Any
) -> Answer:
    given = {"modelParameters": parameters, **more}
    body = {name: value for name, value in given.items() if value is not None}
    return api.post(RECOMMEND, {**body, "environmentIds": ALL if environments is None else environments})


def codes(items: list[dict[str, Any]]) -> dict[str, list[str]]:
    return {item["framework"]: [reason["code"] for reason in item["reasons"]] for item in items}


@pytest.mark.parametrize("who", ["owner", "colleague", "viewer"])
def test_project_members_get_recommendations(who: str, request: pytest.FixtureRequest) -> None:
    data = request_recommendation(request.getfixturevalue(who), 100_000_000).data
    assert data["modelParameters"] == 100_000_000
    assert [item["framework"] for item in data["items"]] == ["pytorch-ddp"]


def test_strangers_see_no_environments_and_anonymous_must_sign_in(stranger: Api, anonymous: Api) -> None:
    assert request_recommendation(stranger, 10**9).problems == {
        f"environmentIds.{n}": "ENVIRONMENT_UNKNOWN" for n in range(3)
    }
    assert request_recommendation(anonymous, 10**9).error == "NOT_AUTHENTICATED"


@pytest.mark.parametrize(
    ("parameters", "first"), [(10**8, "pytorch-ddp"), (7 * 10**9, "pytorch-fsdp"), (3 * 10**10, "deepspeed")]
)
def test_the_documents_table_by_model_size_ranks_first(colleague: Api, parameters: int, first: str) -> None:
    data = request_recommendation(colleague, parameters).data
    assert data["items"][0]["framework"] == first
    assert data["items"][0]["reasons"][0]["code"] == "RECOMMENDED_BY_SIZE"
    assert all(reason["message"] for item in data["items"] + data["rejected"] for reason in item["reasons"])
    named = [item["framework"] for item in data["items"] + data["rejected"]]
    assert len(named) == len(set(named)) == len(colleague.get("/frameworks").data["items"])


def test_a_recommendation_equals_what_the_framework_would_run(colleague: Api) -> None:
    [fsdp, *_] = request_recommendation(colleague, 7 * 10**9).data["items"]
    assert fsdp["label"] == "PyTorch FSDP"
    assert fsdp["strategy"] == {"dataParallel": 14}
    # 7B parameters are 104 GiB of state: groups of 2 inside the zones hold it in 2 × 64 GiB
    assert fsdp["options"] == {"sharding": "hybrid", "shardSize": 2, "mixedPrecision": "float32"}
    assert "PROPOSED_HYBRID_SHARD" in [reason["code"] for reason in fsdp["reasons"]]


def test_a_model_is_split_over_all_zones_where_one_zone_is_too_small(colleague: Api) -> None:
    [fsdp, *_] = request_recommendation(colleague, 9_500_000_000).data["items"]
    assert fsdp["options"]["sharding"] == "full"
    assert "PROPOSED_FULL_FOR_MEMORY" in [reason["code"] for reason in fsdp["reasons"]]


def test_a_model_larger_than_a_gpu_is_split_and_other_frameworks_rejected(colleague: Api) -> None:
    DevEnvironment.objects.update(gpu_type="T4")  # 16 GiB
    data = request_recommendation(colleague, 900_000_000).data
    assert [item["framework"] for item in data["items"]] == ["pytorch-fsdp", "deepspeed"]
    assert codes(data["items"])["deepspeed"][0] == "RECOMMENDED_BY_MEMORY"
    assert codes(data["rejected"])["pytorch-ddp"] == ["REJECTED_BY_MEMORY"]


def test_a_framework_of_another_library_is_not_recommended(colleague: Api) -> None:
    assert codes(request_recommendation(colleague, 10**8).data["rejected"])["jax"] == ["REJECTED_OTHER_LIBRARY"]


def test_the_deepspeed_stage_follows_the_model_size(colleague: Api) -> None:
    def options(parameters: int) -> dict[str, Any]:
        items = request_recommendation(colleague, parameters).data["items"]
        return next(item["options"] for item in items if item["framework"] == "deepspeed")

    assert options(15 * 10**9)["zeroStage"] == 2  # 2 bytes of weight per parameter: 28 GiB, and the rest is split
    assert options(60 * 10**9)["zeroStage"] == 3
    assert options(99 * 10**9) == {
        "zeroStage": 3, "trainBatchSize": 70, "microBatchSize": 5, "gradientAccumulationSteps": 1,
    }  # fmt: skip


def test_model_size_comes_from_the_model_or_its_hyperparameters(colleague: Api) -> None:
    from fermi.jobs import recipes

    small = request_recommendation(colleague, modelId="model-001").data
    assert small["modelParameters"] == recipes.count_gpt_parameters(Model.objects.get().defaults) == 136_960
    Model.objects.update(parameters=13 * 10**9)
    assert request_recommendation(colleague, modelId="model-001").data["modelParameters"] == 13 * 10**9
    assert request_recommendation(colleague, 10**8, modelId="model-001").data["modelParameters"] == 10**8, (
        "what is asked for wins"
    )


@pytest.mark.parametrize(
    ("body", "problems"),
    [
        ({"environmentIds": ["env-001"]}, {"modelParameters": "MODEL_SIZE_REQUIRED"}),
        ({"environmentIds": [], "modelParameters": 1}, {"environmentIds": "ENVIRONMENT_REQUIRED"}),
        ({"modelParameters": 1}, {"environmentIds": "FIELD_REQUIRED"}),
        ({"environmentIds": ["env-001"], "modelParameters": 0}, {"modelParameters": "FIELD_RANGE"}),
        ({"environmentIds": ["env-001"], "modelParameters": 10**19}, {"modelParameters": "FIELD_RANGE"}),
        ({"environmentIds": ["env-001"], "modelParameters": "7B"}, {"modelParameters": "WRONG_TYPE"}),
        ({"environmentIds": ["env-001"], "modelParameters": 1.5}, {"modelParameters": "WRONG_TYPE"}),
        ({"environmentIds": ["env-001"], "parameters": 1}, {"parameters": "UNKNOWN_FIELD"}),
        ({"environmentIds": ["env-001"], "modelId": "model-9"}, {"modelId": "MODEL_UNKNOWN"}),
        (
            {"environmentIds": ["env-001", "env-001", "env-9"], "modelParameters": 1, "masterNode": "env-003"},
            {
                "environmentIds.1": "ENVIRONMENT_DUPLICATE",
                "environmentIds.2": "ENVIRONMENT_UNKNOWN",
                "masterNode": "MASTER_NOT_SELECTED",
            },
        ),
    ],
)
def test_all_problems_of_a_recommendation_request_are_reported(
    colleague: Api, body: dict[str, Any], problems: dict[str, str]
) -> None:
    assert colleague.post(RECOMMEND, body).problems == problems


def test_a_model_of_another_project_is_unknown(colleague: Api, other_project: Project) -> None:
    Model.objects.update(project=other_project)
    assert request_recommendation(colleague, modelId="model-001").problems == {"modelId": "MODEL_UNKNOWN"}


def test_reasons_are_in_the_readers_language(colleague: Api) -> None:
    colleague.lang = "en"
    [ddp] = request_recommendation(colleague, 10**8).data["items"]
    assert "100M parameters" in ddp["reasons"][0]["message"]


def test_a_recommendation_can_be_sent_as_a_request(colleague: Api, dataset: Any) -> None:
    from tests.api.test_tasks_create import changed

    for parameters in (10**8, 7 * 10**9, 3 * 10**10):
        for item in request_recommendation(colleague, parameters).data["items"]:
            request = changed(
                distributedConfig__framework=item["framework"], distributedConfig__strategy=item["strategy"],
                distributedConfig__options=item["options"],
            )  # fmt: skip
            assert colleague.post("/training-tasks/preview", request).data["problems"] == [], item


def test_recommendation_queries_do_not_grow_with_environments(colleague: Api, django_assert_num_queries: Any) -> None:
    for environments in (["env-001"], ALL):
        with django_assert_num_queries(3):  # who is asking; the environments; the model that is not named
            request_recommendation(colleague, 10**8, environments)


def test_hyperparameters_of_the_form_change_the_model_size(colleague: Api, model: Any) -> None:
    """BERT-Large's shape; a value that cannot be is as good as none."""
    large = {"layers": 24, "hiddenSize": 1024, "sequenceLength": 512, "vocabSize": 30592}
    assert (
        request_recommendation(colleague, modelId=model.pk, hyperparameters=large).data["modelParameters"]
        == 365_488_128
    )
    assert (
        request_recommendation(colleague, 10**9, modelId=model.pk, hyperparameters=large).data["modelParameters"]
        == 10**9
    )
    usual = request_recommendation(colleague, modelId=model.pk).data["modelParameters"]
    assert (
        request_recommendation(colleague, modelId=model.pk, hyperparameters={"layers": "many"}).data["modelParameters"]
        == usual
    )
