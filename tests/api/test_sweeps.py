"""Sweeps: who may create, read and steer them, and what is refused. What a pass does: tests/apps/sweeps."""

from typing import Any

import pytest

from apps.common.clock import now
from apps.sweeps.models import Sweep, Trial
from apps.training.models import Task
from tests.api.conftest import Api
from tests.api.test_tasks_actions import SINGLE
from tests.apps.sweeps.lives import end_task, report, run_pass

pytestmark = [pytest.mark.database, pytest.mark.usefixtures("environments", "dataset", "model")]
SWEEPS = "/sweeps"
BODY: dict[str, Any] = {
    "name": "rates",
    "objective": {"metric": "val_loss"},
    "method": "random",
    "parameters": {"learningRate": {"min": 1e-5, "max": 1e-2, "scale": "log"}},
    "budget": {"trials": 3},
    "parallel": 2,
    "request": SINGLE,
}


@pytest.fixture
def sweep(colleague: Api) -> str:
    return str(colleague.post(SWEEPS, BODY).data["id"])


def run(sweep: str) -> None:
    run_pass(Sweep.objects.get(pk=sweep))


def finish(sweep: str) -> None:
    """Run all of its trials; the second one is the best."""
    for _ in range(4):
        run(sweep)
        for trial in Trial.objects.filter(sweep=sweep, state="active"):
            report(trial, (5, abs(trial.number - 1.0) + 2), metric="val_loss")
            end_task(trial.task_id)
    run(sweep)


def test_a_member_creates_a_sweep_and_its_trials_are_tasks(colleague: Api, owner: Api, sweep: str) -> None:
    found = owner.get(f"{SWEEPS}/{sweep}").data
    assert (found["status"], found["method"], found["metric"], found["owner"]) == (
        "running", "random", "val_loss", "colleague",
    )  # fmt: skip
    assert found["spec"]["parallel"] == 2
    assert found["allowedActions"] == ["pause", "stop"]
    run(sweep)
    trials = owner.get(f"{SWEEPS}/{sweep}/trials").data["items"]
    assert [(one["number"], one["status"], one["chosenBy"]) for one in trials] == [
        (0, "active", "random"), (1, "active", "random"),
    ]  # fmt: skip
    task = Task.objects.get(pk=trials[0]["taskId"])
    assert task.spec["hyperparameters"]["learningRate"] == trials[0]["parameters"]["learningRate"]
    assert owner.get(SWEEPS).data["items"][0]["trials"] == {
        "total": 2, "running": 2, "paused": 0, "complete": 0, "pruned": 0, "failed": 0, "stopped": 0,
    }  # fmt: skip


def test_strangers_see_no_sweep_and_viewers_change_none(viewer: Api, stranger: Api, anonymous: Api, sweep: str) -> None:
    assert viewer.get(f"{SWEEPS}/{sweep}").data["allowedActions"] == []
    for path in ("", "/trials", "/importance"):
        assert viewer.get(f"{SWEEPS}/{sweep}{path}").status == 200
        assert stranger.get(f"{SWEEPS}/{sweep}{path}").status == 404
        assert anonymous.get(f"{SWEEPS}/{sweep}{path}").status == 401
    for action in ("pause", "resume", "stop", "clone-best"):
        assert viewer.post(f"{SWEEPS}/{sweep}/{action}").status == 403
        assert stranger.post(f"{SWEEPS}/{sweep}/{action}").status == 404
        assert anonymous.post(f"{SWEEPS}/{sweep}/{action}").status == 401
    assert viewer.delete(f"{SWEEPS}/{sweep}").status == 403
    assert stranger.delete(f"{SWEEPS}/{sweep}").status == 404
    assert stranger.get(SWEEPS).data["items"] == []
    assert anonymous.get(SWEEPS).status == 401
    assert viewer.post(SWEEPS, BODY).status == 403
    assert viewer.post(f"{SWEEPS}/preview", BODY).status == 200
    assert stranger.post(SWEEPS, BODY).status == 400
    assert anonymous.post(SWEEPS, BODY).status == 401


def test_all_problems_of_a_sweep_and_of_its_task_are_reported_at_once(colleague: Api) -> None:
    answer = colleague.post(SWEEPS, {**BODY, "name": "", "budget": {"endsAt": "2020-01-01T00:00:00Z"},
                                     "request": {**SINGLE, "environmentIds": ["env-none"]}})  # fmt: skip
    assert answer.status == 400
    assert answer.problems == {
        "name": "SWEEP_VALUE_MISSING",
        "budget.endsAt": "SWEEP_END_PAST",
        "request.environmentIds.0": "ENVIRONMENT_UNKNOWN",
    }
    wrong = {"learningRate": {"min": -5, "max": -1}}
    assert colleague.post(SWEEPS, {**BODY, "parameters": wrong}).problems.keys() == {"parameters.learningRate"}
    assert not Sweep.objects.exists()


@pytest.mark.parametrize(
    "body",
    [
        [], "x", {"name": "\x00"}, {"parameters": {"a\x00": {"value": 1}}}, {"parameters": []}, {"request": 5},
        {**BODY, "parameters": {"lr": {"values": [{}, [], None]}}}, {**BODY, "parameters": {"lr": {"values": [1e400]}}},
        {**BODY, "parameters": {"lr": {"min": 1, "max": 2, "when": {"lr": 1}}}},
        {**BODY, "request": {"env": [], "hyperparameters": 3, "entrypoint": {"args": 5}}},
        {**BODY, "request": {**SINGLE, "entrypoint": {"script": 5, "args": [{}]}}},
        {**BODY, "parallel": 10**9}, {**BODY, "budget": {"trials": 1e99}}, {**BODY, "budget": {"endsAt": "0001-01-01"}},
        {**BODY, "pruning": {"method": "asha", "minSteps": 1, "maxSteps": 2**53, "reduction": 2}, "name": ""},
    ],
)  # fmt: skip
def test_a_malformed_sweep_is_refused_with_a_code(colleague: Api, body: Any) -> None:
    assert colleague.post(SWEEPS, body).status == 400
    assert colleague.post(f"{SWEEPS}/preview", body).status in (200, 400)


def test_a_preview_shows_the_first_trials_and_stores_nothing(colleague: Api) -> None:
    found = colleague.post(f"{SWEEPS}/preview", {**BODY, "budget": {"trials": 20}}).data
    assert (found["problems"], found["count"], len(found["parameters"])) == ([], 20, 10)
    assert found["request"]["taskName"].endswith(" #0")
    rates = {one["learningRate"] for one in found["parameters"]}
    assert len(rates) == 10
    grid = {**BODY, "method": "grid", "budget": {}, "parameters": {"layers": {"values": [2, 3, 4]}}}
    found = colleague.post(f"{SWEEPS}/preview", grid).data
    assert (found["count"], [one["layers"] for one in found["parameters"]]) == (3, [2, 3, 4])
    assert not Sweep.objects.exists()
    assert not Task.objects.exists()


def test_a_preview_shows_how_the_first_trials_start_a_script(colleague: Api) -> None:
    entry = {"script": "train.py", "args": ["--lr={lr}", "${sweep.args}"]}
    body = {**BODY, "method": "grid", "parameters": {"lr": {"values": [0.1, 0.2]}}, "budget": {}}
    found = colleague.post(f"{SWEEPS}/preview", {**body, "request": {**SINGLE, "entrypoint": entry}}).data
    assert found["commands"] == ["train.py --lr=0.1 --lr=0.1", "train.py --lr=0.2 --lr=0.2"]
    assert colleague.post(f"{SWEEPS}/preview", body).data["commands"] == []


FILES = {
    "ours": "name: rates\nobjective: {metric: val_loss}\nparameters: {lr: {min: 1e-5, max: 0.1, scale: log}}\n",
    "wandb": "program: train.py\nname: rates\nmethod: bayes\nmetric: {name: val_loss}\n"
    "parameters: {lr: {min: 1.0e-5, max: 0.1, distribution: log_uniform_values}}\n",
    "katib": "kind: Experiment\nmetadata: {name: rates}\nspec:\n  objective: {objectiveMetricName: val_loss}\n"
    "  algorithm: {algorithmName: tpe}\n  parameters:\n  - name: lr\n    parameterType: double\n"
    "    feasibleSpace: {min: '1e-5', max: '0.1', distribution: logUniform}\n",
}


@pytest.mark.parametrize("kind", FILES)
def test_a_pasted_file_is_read_as_a_sweep_and_nothing_is_stored(viewer: Api, anonymous: Api, kind: str) -> None:
    found = viewer.post(f"{SWEEPS}/read-file", {"text": FILES[kind]}).data
    assert found["problems"] == []
    assert (found["sweep"]["name"], found["sweep"]["objective"]["metric"]) == ("rates", "val_loss")
    assert found["sweep"]["parameters"] == {"lr": {"min": 1e-5, "max": 0.1, "scale": "log"}}
    assert not Sweep.objects.exists()
    assert anonymous.post(f"{SWEEPS}/read-file", {"text": FILES[kind]}).status == 401


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("", "FIELD_BLANK"), ("x" * 65_537, "FIELD_LENGTH"), ("a: b: c", "YAML_UNREADABLE"), ("- 1", "YAML_NOT_OBJECT"),
        ("a: &a [*a]", "YAML_TOO_LARGE"), ("a: .inf\nb: 1e999", "YAML_VALUE"), (5, "WRONG_TYPE"),
    ],
)  # fmt: skip
def test_a_pasted_text_that_is_no_sweep_file_is_refused(colleague: Api, text: Any, code: str) -> None:
    answer = colleague.post(f"{SWEEPS}/read-file", {"text": text})
    assert (answer.status, answer.problems) == (400, {"text": code})


def test_what_of_a_pasted_file_has_no_equal_is_named(colleague: Api) -> None:
    found = colleague.post(f"{SWEEPS}/read-file", {"text": FILES["wandb"] + "entity: me\nimage: x\n"}).data
    assert [one["error"] for one in found["problems"]] == ["SWEEP_PART_UNSUPPORTED"]


def test_a_sweep_is_paused_resumed_and_stopped(colleague: Api, sweep: str) -> None:
    path = f"{SWEEPS}/{sweep}"
    assert colleague.post(f"{path}/pause").data["status"] == "paused"
    assert colleague.post(f"{path}/pause").data["reason"]["code"] == "SWEEP_PAUSED"
    assert colleague.post(f"{path}/resume").data["status"] == "running"
    assert colleague.post(f"{path}/resume").data["reason"] is None
    assert colleague.post(f"{path}/stop").data["status"] == "stopping"
    refused = colleague.post(f"{path}/pause")
    assert (refused.status, refused.error) == (409, "SWEEP_ACTION_NOT_ALLOWED")
    assert colleague.delete(path).error == "SWEEP_NOT_ENDED"
    run(sweep)
    assert colleague.post(f"{path}/stop").data["status"] == "ended"
    assert colleague.delete(path).status == 200
    assert colleague.get(path).status == 404


def test_an_ended_sweep_shows_its_best_trial_and_clones_it_with_more_steps(colleague: Api, sweep: str) -> None:
    path = f"{SWEEPS}/{sweep}"
    assert colleague.post(f"{path}/clone-best").error == "SWEEP_WITHOUT_BEST"
    finish(sweep)
    found = colleague.get(path).data
    assert (found["status"], found["best"], found["bestValue"], found["allowedActions"]) == (
        "ended", 1, 2.0, ["delete", "cloneBest"],
    )  # fmt: skip
    best = found["bestTrial"]["parameters"]["learningRate"]
    answer = colleague.post(f"{path}/clone-best", {"taskName": "long", "hyperparameters": {"totalSteps": 900}})
    assert answer.status == 201
    task = Task.objects.get(pk=answer.data["taskId"])
    assert (task.name, task.total_steps, task.spec["hyperparameters"]["learningRate"]) == ("long", 900, best)
    assert task.pk not in set(Trial.objects.values_list("task", flat=True))


def test_a_script_that_seems_not_to_read_the_parameters_is_named(colleague: Api) -> None:
    def list_codes(path: str) -> list[str]:
        return [one["code"] for one in colleague.get(path).data["warnings"]]

    request = {**SINGLE, "entrypoint": {"command": ["python", "-c", "print('val_loss 1')"]}, "modelId": None}
    made = colleague.post(SWEEPS, {**BODY, "request": request})
    assert [one["code"] for one in made.data["warnings"]] == ["SWEEP_ARGUMENTS_UNUSED"], made.body
    path = f"{SWEEPS}/{made.data['id']}"
    run(made.data["id"])
    Trial.objects.update(state="complete", value=2.5)
    assert list_codes(path) == ["SWEEP_ARGUMENTS_UNUSED"]
    run(made.data["id"])
    Trial.objects.update(state="complete", value=2.5)
    assert list_codes(path) == ["SWEEP_VALUES_EQUAL"]
    Trial.objects.update(parameters={"learningRate": 0.5})
    assert list_codes(path) == []
    Trial.objects.filter(number=0).update(parameters={"learningRate": 0.1}, value=2.25)
    assert list_codes(path) == []


def test_trials_are_filtered_and_ordered_by_their_objective(colleague: Api, sweep: str) -> None:
    finish(sweep)
    path = f"{SWEEPS}/{sweep}/trials"
    assert [one["number"] for one in colleague.get(path, ordering="-value").data["items"]] == [0, 2, 1]
    assert colleague.get(path, status="failed").data["total"] == 0
    assert colleague.get(path, status="complete", pageSize=2).data["total"] == 3
    importance = colleague.get(f"{SWEEPS}/{sweep}/importance").data
    assert importance["trials"] == 3


def test_sweeps_are_filtered_by_state_project_and_name(colleague: Api, sweep: str, project: Any) -> None:
    other = colleague.post(SWEEPS, {**BODY, "name": "depth"}).data["id"]
    Sweep.objects.filter(pk=other).update(state="ended", ended_at=now(), due_at=None)
    assert colleague.get(SWEEPS).ids == [other, sweep]
    assert colleague.get(SWEEPS, status="running").ids == [sweep]
    assert colleague.get(SWEEPS, search="dep").ids == [other]
    assert colleague.get(SWEEPS, project=project.pk, ordering="-name").ids == [sweep, other]
    assert colleague.get(SWEEPS, project="project-none").ids == []


def test_a_viewer_does_not_read_secrets_of_the_request(colleague: Api, viewer: Api) -> None:
    request = {**SINGLE, "env": {"WANDB_API_KEY": "0123456789abcdef0123456789abcdef01234567"}}
    made = colleague.post(SWEEPS, {**BODY, "request": request}).data
    assert made["spec"]["request"]["env"] == request["env"]
    shown = viewer.get(f"{SWEEPS}/{made['id']}").data["spec"]["request"]["env"]
    assert shown["WANDB_API_KEY"] != request["env"]["WANDB_API_KEY"]


def test_lists_of_sweeps_and_trials_need_few_queries(
    colleague: Api, sweep: str, django_assert_max_num_queries: Any
) -> None:
    finish(sweep)
    for name in ("a", "b"):
        colleague.post(SWEEPS, {**BODY, "name": name})
    with django_assert_max_num_queries(6):
        assert len(colleague.get(SWEEPS).data["items"]) == 3
    with django_assert_max_num_queries(8):
        assert len(colleague.get(f"{SWEEPS}/{sweep}/trials").data["items"]) == 3
