import pytest

from apps.catalog.models import Model
from tests.api.conftest import Api


def test_a_model_is_a_recipe_with_defaults(viewer: Api, model: Model) -> None:
    [shown] = viewer.get("/models").data["items"]
    assert (shown["id"], shown["recipe"], shown["projectId"]) == ("model-001", "gpt", None)
    assert shown["defaults"]["totalSteps"] == model.defaults["totalSteps"]


def test_a_maintainer_adds_a_model_to_the_project(owner: Api, stranger: Api) -> None:
    body = {"name": "mine", "projectId": "project-one", "defaults": {"layers": 4}, "parameters": 10_000_000}
    made = owner.post("/models", body)
    assert (made.status, made.data["defaults"], made.data["parameters"]) == (201, {"layers": 4}, 10_000_000)
    assert owner.get("/models").ids == [made.data["id"]]
    assert stranger.get("/models").ids == []


def test_defaults_that_no_task_can_run_with_are_refused(owner: Api) -> None:
    body = {"name": "mine", "projectId": "project-one", "defaults": {"layerz": 4, "dtype": "int8", "batchSize": 8}}
    answer = owner.post("/models", body)
    assert answer.problems == {"defaults.layerz": "HYPERPARAMETER_UNKNOWN", "defaults.dtype": "HYPERPARAMETER_INVALID"}


@pytest.mark.parametrize("defaults", [{"wandbProject": "a\0b"}, {"a\0b": 1}, {"x": [{"y": "\0"}]}])
def test_a_nul_character_is_refused_at_any_depth(owner: Api, defaults: dict) -> None:
    answer = owner.post("/models", {"name": "mine", "projectId": "project-one", "defaults": defaults})
    assert set(answer.problems.values()) == {"NUL_CHARACTER"}


def test_an_unknown_recipe_is_refused(owner: Api) -> None:
    answer = owner.post("/models", {"name": "mine", "projectId": "project-one", "recipe": "bert"})
    assert answer.problems == {"recipe": "RECIPE_UNKNOWN"}


@pytest.mark.parametrize("who", ["viewer", "colleague"])
def test_only_maintainers_add_models(who: str, request: pytest.FixtureRequest) -> None:
    api: Api = request.getfixturevalue(who)
    assert api.post("/models", {"name": "mine", "projectId": "project-one"}).error == "FORBIDDEN"


def test_frameworks_are_described_in_the_readers_language(viewer: Api) -> None:
    data = viewer.get("/frameworks").data
    ddp = {item["value"]: item for item in data["items"]}["pytorch-ddp"]
    assert ddp["aliases"] == ["ddp", "single"]
    assert ddp["available"] is True
    assert "数据并行" in ddp["description"]
    assert ddp["options"]["type"] == "object"
    viewer.lang = "en-GB"
    english = {item["value"]: item for item in viewer.get("/frameworks").data["items"]}["pytorch-ddp"]
    assert "Data parallel" in english["description"]
