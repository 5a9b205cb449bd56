"""Where ranks run, inside the environments or outside them: asked for, chosen, explained, refused."""

import sys
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from apps.training.models import Task
from apps.training.reconcile import reconciler
from fermi.engines.local.engine import LocalBackend
from fermi.jobs.errors import BackendError
from fermi.jobs.run_location import RunLocations
from fermi.jobs.spec import JobSpec, RunLocation
from tests.api.conftest import Api
from tests.api.test_tasks_create import changed

pytestmark = pytest.mark.usefixtures("environments", "dataset", "model")

RUN_IN = "distributedConfig.runIn"
HOLDS = RunLocation(True, "WAY_INSIDE_GPUS", {"gpus": 2})
CLAIM = RunLocation(False, "WAY_BESIDE_CLAIM")
OLD = RunLocation(False, "INSIDE_PYTHON_OLD", {"found": "3.6"})
ELSEWHERE = RunLocation(True, "BESIDE_OTHER_NAMESPACE", {"found": "research", "namespace": "training"})

CanRun = Callable[[Mapping[str, RunLocations]], None]


@pytest.fixture
def can_run(monkeypatch: pytest.MonkeyPatch) -> CanRun:
    """Has the engine say this of its environments; of the others it says that they have only one way."""

    def say(known: Mapping[str, RunLocations]) -> None:
        def ways(_: LocalBackend, job: JobSpec) -> Mapping[str, RunLocations]:
            return {node.id: known[node.id] for node in job.nodes if node.id in known}

        monkeypatch.setattr(LocalBackend, "find_run_locations", ways)

    return say


@pytest.fixture
def mixed(can_run: CanRun) -> None:
    can_run({"env-001": RunLocations(HOLDS), "env-003": RunLocations(CLAIM)})


def preview(api: Api, **changes: Any) -> dict[str, Any]:
    data: dict[str, Any] = api.post("/training-tasks/preview", changed(**changes)).data
    return data


def runs_in(found: dict[str, Any]) -> dict[str, tuple[str, str] | None]:
    """(way, code) by environment: of a preview, or of a task."""
    return {
        each["environmentId"]: each["runsIn"] and (each["runsIn"]["way"], each["runsIn"]["code"])
        for each in (found["nodes"] if "nodes" in found else found["environments"])
    }


def test_an_engine_with_one_run_location_shows_none(colleague: Api, can_run: CanRun) -> None:
    can_run({})
    assert runs_in(preview(colleague)) == {"env-001": None, "env-003": None, "env-005": None}


@pytest.mark.usefixtures("mixed")
def test_each_environment_has_its_own_run_location_and_reason(colleague: Api) -> None:
    found = preview(colleague)
    assert found["problems"] == []
    assert runs_in(found) == {
        "env-001": ("inside", "WAY_INSIDE_GPUS"), "env-003": ("beside", "WAY_BESIDE_CLAIM"), "env-005": None,
    }  # fmt: skip
    assert found["environments"][0]["runsIn"]["message"] == "环境持有 2 个 GPU。"
    colleague.lang = "en"
    [first, second, _] = preview(colleague)["environments"]
    assert (first["name"], first["runsIn"]["message"]) == ("pytorch-dev-env", "The environment holds 2 GPUs.")
    assert second["runsIn"]["message"] == "A ResourceClaim holds its GPUs, and the task can use the same claim."


@pytest.mark.parametrize(
    ("asked", "found"),
    [("environment", ("inside", "WAY_INSIDE_ASKED")), ("beside", ("beside", "WAY_BESIDE_ASKED")),
     ("pod", ("beside", "WAY_BESIDE_ASKED"))],
)  # fmt: skip
def test_a_requested_run_location_applies_to_all_environments(
    colleague: Api, can_run: CanRun, asked: str, found: tuple[str, str]
) -> None:
    can_run({"env-001": RunLocations(HOLDS), "env-003": RunLocations(CLAIM)})
    shown = preview(colleague, distributedConfig__runIn=asked, distributedConfig__nodeIds=["env-001", "env-003"])
    assert runs_in(shown) == {"env-001": found, "env-003": found}


@pytest.mark.usefixtures("mixed")
def test_a_requested_run_location_without_alternative_has_no_effect(colleague: Api) -> None:
    colleague.lang = "en"
    found = preview(colleague, distributedConfig__runIn="environment")
    assert found["problems"] == []
    [said] = [one["message"] for one in found["warnings"] if one["code"] == "RUN_IN_UNUSED"]
    assert said.endswith("only one way for: nlp-research-lab.")
    assert "RUN_IN_UNUSED" not in {one["code"] for one in preview(colleague)["warnings"]}


def test_an_impossible_run_location_is_the_reason_for_the_other(colleague: Api, can_run: CanRun) -> None:
    can_run({"env-001": RunLocations(HOLDS, inside=OLD), "env-003": RunLocations(CLAIM, beside=ELSEWHERE)})
    colleague.lang = "en"
    found = preview(colleague)
    assert found["problems"] == []
    assert runs_in(found) == {
        "env-001": ("beside", "INSIDE_PYTHON_OLD"), "env-003": ("inside", "BESIDE_OTHER_NAMESPACE"), "env-005": None,
    }  # fmt: skip
    why = "Training cannot run inside pytorch-dev-env: its Python is 3.6, and 3.9 is needed."
    assert found["environments"][0]["runsIn"]["message"] == why


@pytest.mark.parametrize(("asked", "why"), [("environment", "INSIDE_PYTHON_OLD"), ("beside", "BESIDE_OTHER_NAMESPACE")])
def test_an_impossible_run_location_is_refused_for_each_environment(
    colleague: Api, can_run: CanRun, asked: str, why: str
) -> None:
    closed = RunLocations(HOLDS, inside=OLD, beside=ELSEWHERE)
    can_run({"env-001": closed, "env-005": closed})
    found = preview(colleague, distributedConfig__runIn=asked)
    assert set(runs_in(found).values()) == {None}
    problems = found["problems"]
    assert [(one["field"], one["error"]) for one in problems] == [(RUN_IN, why)] * 2
    assert "pytorch-dev-env" in problems[0]["message"]
    assert colleague.post("/training-tasks", changed(distributedConfig__runIn=asked)).problems == {RUN_IN: why}
    assert not Task.objects.exists()


def test_without_any_possible_run_location_both_reasons_are_given(colleague: Api, can_run: CanRun) -> None:
    can_run({"env-001": RunLocations(HOLDS, inside=OLD, beside=ELSEWHERE)})
    problems = preview(colleague)["problems"]
    assert [(one["field"], one["error"]) for one in problems] == [
        (RUN_IN, "INSIDE_PYTHON_OLD"), (RUN_IN, "BESIDE_OTHER_NAMESPACE"),
    ]  # fmt: skip


def test_an_unreachable_engine_defers_the_choice_to_the_start(colleague: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    def away(*_: Any) -> Mapping[str, RunLocations]:
        raise BackendError("ENGINE_UNREACHABLE", why="no answer")

    monkeypatch.setattr(LocalBackend, "find_run_locations", away)
    found = preview(colleague, distributedConfig__runIn="environment")
    assert found["problems"] == []
    assert set(runs_in(found).values()) == {None}
    assert found["ranks"], "the rest is shown"
    assert "RUN_IN_UNUSED" not in {one["code"] for one in found["warnings"]}


@pytest.mark.usefixtures("mixed")
def test_a_task_shows_run_locations_and_a_clone_keeps_the_request(colleague: Api) -> None:
    asked = {"distributedConfig__runIn": "environment", "distributedConfig__python": sys.executable}
    made = colleague.post("/training-tasks", changed(**asked)).data["taskId"]
    inside = ("inside", "WAY_INSIDE_ASKED")
    task = colleague.get(f"/training-tasks/{made}").data
    assert runs_in(task) == {"env-005": None, "env-001": inside, "env-003": inside}
    config = colleague.post(f"/training-tasks/{made}/clone").data["request"]["distributedConfig"]
    assert (config["runIn"], config["python"]) == ("environment", sys.executable)


def test_a_task_shows_the_run_location_of_its_newest_attempt(
    colleague: Api, can_run: CanRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was possible when it was created may not be when its turn comes."""
    monkeypatch.setattr(LocalBackend, "submit", lambda *_: None)
    can_run({"env-001": RunLocations(CLAIM)})
    request = changed(distributedConfig=None, environmentIds=["env-001"])
    made = colleague.post("/training-tasks", request).data["taskId"]
    assert runs_in(colleague.get(f"/training-tasks/{made}").data) == {"env-001": ("beside", "WAY_BESIDE_CLAIM")}
    can_run({"env-001": RunLocations(CLAIM, beside=ELSEWHERE)})
    for _ in range(3):
        reconciler.reconcile_tasks(made)
    assert Task.objects.get(pk=made).attempt == 1
    assert runs_in(colleague.get(f"/training-tasks/{made}").data) == {"env-001": ("inside", "BESIDE_OTHER_NAMESPACE")}


@pytest.mark.parametrize(
    ("field", "value", "error"),
    [("runIn", "elsewhere", "FIELD_CHOICE"), ("runIn", 1, "WRONG_TYPE"), ("python", "p" * 501, "FIELD_LENGTH"),
     ("python", 3, "WRONG_TYPE")],
    ids=lambda value: str(value)[:20],
)  # fmt: skip
def test_values_of_a_wrong_type_are_refused_by_field(colleague: Api, field: str, value: object, error: str) -> None:
    problems = preview(colleague, **{f"distributedConfig__{field}": value})["problems"]
    assert [(one["field"], one["error"]) for one in problems] == [(f"distributedConfig.{field}", error)]


@pytest.mark.usefixtures("mixed")
def test_environments_with_private_checkpoints_are_named(colleague: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those inside of which ranks run: training pods have the data volume."""
    monkeypatch.setattr(LocalBackend, "shares_data", lambda *_: False)
    (found,) = [one for one in preview(colleague)["warnings"] if one["code"] == "INSIDE_NOT_SHARED"]
    assert "pytorch-dev" in found["message"]
    assert "llm-training" not in found["message"]


@pytest.mark.usefixtures("mixed")
def test_a_task_that_bypasses_the_engines_queue_says_so(colleague: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as Kueue: nothing is scheduled there."""
    assert "INSIDE_NOT_QUEUED" not in [one["code"] for one in preview(colleague)["warnings"]]
    monkeypatch.setattr(LocalBackend, "queues", True)
    (found,) = [one for one in preview(colleague)["warnings"] if one["code"] == "INSIDE_NOT_QUEUED"]
    assert "pytorch-dev" in found["message"]
    assert "llm-training" not in found["message"]
