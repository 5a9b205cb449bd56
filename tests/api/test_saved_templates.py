"""Saved templates: who may save, see, change and use them, and what a task from one is."""

import pytest

from apps.accounts.models import AuditEvent
from apps.templates.models import SavedTemplate
from apps.training.models import Task
from tests.api.test_tasks_create import changed

pytestmark = [pytest.mark.database, pytest.mark.usefixtures("environments", "dataset", "model")]

ONE = "project-one"
REQUEST = changed(
    taskName="train-{{lr}}", distributedConfig=None, environmentIds="{{nodes}}",
    hyperparameters={"learningRate": "{{lr}}", "totalSteps": "{{steps}}"}, datasetId="{{data.dataset}}",
    datasetVersionId="{{data}}", env={"OPTIMIZER": "{{optimizer}}", "FAST": "{{fast}}"},
)  # fmt: skip
PARAMETERS = [
    {"name": "lr", "type": "number", "low": 0, "high": 1, "default": 0.001, "help": "the step size"},
    {"name": "steps", "type": "integer", "label": "number of steps", "low": 1},
    {"name": "nodes", "type": "environments", "default": ["env-001"]},
    {"name": "data", "type": "datasetVersion", "default": "version-001"},
    {"name": "optimizer", "type": "choice", "choices": ["adam", "sgd"], "default": "adam"},
    {"name": "fast", "type": "boolean", "default": True},
]
BODY = {"name": "nightly", "projectId": ONE, "request": REQUEST, "parameters": PARAMETERS}


@pytest.fixture
def template(colleague):
    return colleague.post("/saved-templates", BODY).data["id"]


def test_members_save_templates_and_viewers_read_them(owner, colleague, viewer, stranger, anonymous, template):
    for user in (owner, colleague, viewer):
        shown = user.get(f"/saved-templates/{template}").data
        assert (shown["name"], shown["version"], shown["createdBy"], shown["projectId"]) == (
            "nightly", 1, "colleague", ONE
        )  # fmt: skip
        assert shown["mayChange"] is (user is not viewer)
        assert user.get("/saved-templates").ids == [template]
    assert [one["name"] for one in shown["parameters"]] == ["lr", "steps", "nodes", "data", "optimizer", "fast"]
    assert shown["parameters"][0] | {"help": ""} == {
        "name": "lr", "type": "number", "label": "lr", "help": "", "default": 0.001, "low": 0, "high": 1, "choices": []
    }  # fmt: skip
    assert stranger.get("/saved-templates").ids == []
    assert stranger.get(f"/saved-templates/{template}").error == "NOT_FOUND"
    assert anonymous.get("/saved-templates").error == "NOT_AUTHENTICATED"
    assert viewer.post("/saved-templates", {**BODY, "name": "mine"}).error == "FORBIDDEN"
    assert stranger.post("/saved-templates", BODY).problems == {"projectId": "PROJECT_UNKNOWN"}
    assert colleague.post("/saved-templates", BODY).error == "TEMPLATE_NAME_TAKEN"


def test_a_task_gets_the_values_and_the_defaults(colleague, template):
    answer = colleague.post(f"/saved-templates/{template}/tasks", {"values": {"steps": 7, "lr": 0.5, "fast": False}})
    assert answer.status == 201
    task = Task.objects.get(pk=answer.data["taskId"])
    assert (task.name, task.project_id, task.dataset_version_id) == ("train-0.5", ONE, "version-001")
    assert task.request["hyperparameters"] == {"learningRate": 0.5, "totalSteps": 7}
    assert task.request["env"] == {"OPTIMIZER": "adam", "FAST": "false"}
    assert task.request["environmentIds"] == ["env-001"]


def test_all_problems_come_at_once_by_the_names_of_the_parameters(colleague, template):
    values = {"lr": 2, "steps": "many", "optimizer": "lamb", "nodes": [], "speed": 1}
    answer = colleague.post(f"/saved-templates/{template}/tasks", {"values": values})
    assert answer.status == 400
    assert answer.problems == {
        "values.speed": "PARAMETER_UNKNOWN", "values.lr": "PARAMETER_RANGE", "values.steps": "PARAMETER_TYPE",
        "values.nodes": "PARAMETER_TYPE", "values.optimizer": "PARAMETER_CHOICE",
    }  # fmt: skip
    values = {"steps": 1, "nodes": ["env-unknown"], "data": "version-unknown"}
    answer = colleague.post(f"/saved-templates/{template}/tasks", {"values": values})
    assert {"values.nodes", "values.data"} <= set(answer.problems)
    assert colleague.post(f"/saved-templates/{template}/tasks").problems == {"values.steps": "PARAMETER_REQUIRED"}
    assert not Task.objects.exists()


def test_only_members_create_tasks_from_a_template(viewer, stranger, anonymous, owner, template):
    body = {"values": {"steps": 1}}
    assert viewer.post(f"/saved-templates/{template}/tasks", body).error == "FORBIDDEN"
    assert stranger.post(f"/saved-templates/{template}/tasks", body).error == "NOT_FOUND"
    assert anonymous.post(f"/saved-templates/{template}/tasks", body).error == "NOT_AUTHENTICATED"
    assert owner.post(f"/saved-templates/{template}/tasks", body).status == 201


def test_the_same_key_creates_one_task(colleague, template):
    body = {"values": {"steps": 1}}
    made = [colleague.post(f"/saved-templates/{template}/tasks", body, Idempotency_Key="k").data for _ in range(2)]
    assert made[0] == made[1]
    assert Task.objects.count() == 1
    body = {"values": {"steps": 2}}
    answer = colleague.post(f"/saved-templates/{template}/tasks", body, Idempotency_Key="k")
    assert answer.error == "IDEMPOTENCY_CONFLICT"


def test_a_preview_shows_the_request_and_creates_nothing(viewer, colleague, stranger, template):
    shown = colleague.post(f"/saved-templates/{template}/preview", {"values": {"steps": 3}}).data
    assert shown["problems"] == []
    assert shown["request"]["hyperparameters"] == {"learningRate": 0.001, "totalSteps": 3}
    assert shown["preview"]["worldSize"] == 2
    shown = colleague.post(f"/saved-templates/{template}/preview", {"values": {"steps": 0}}).data
    assert [(one["field"], one["error"]) for one in shown["problems"]] == [("values.steps", "PARAMETER_RANGE")]
    assert shown["preview"] is None
    assert stranger.post(f"/saved-templates/{template}/preview").error == "NOT_FOUND"
    assert not Task.objects.exists()


def test_overrides_change_the_rest_of_the_request_but_not_its_project(colleague, template):
    overrides = {"priority": "low", "hyperparameters": {"batchSize": 4}, "projectId": "project-two"}
    body = {"values": {"steps": 1}, "overrides": overrides, "projectId": "project-two"}
    task = Task.objects.get(pk=colleague.post(f"/saved-templates/{template}/tasks", body).data["taskId"])
    assert task.project_id == ONE
    assert task.request["priority"] == "low"
    assert task.request["hyperparameters"] == {"learningRate": 0.001, "totalSteps": 1, "batchSize": 4}


def test_whoever_saved_it_and_maintainers_change_it(owner, colleague, viewer, stranger, template):
    path = f"/saved-templates/{template}"
    assert viewer.patch(path, {"name": "x"}).error == "FORBIDDEN"
    assert stranger.patch(path, {"name": "x"}).error == "NOT_FOUND"
    assert colleague.patch(path, {"description": "of mine"}).data["version"] == 2
    assert owner.patch(path, {"name": "other"}).data["name"] == "other"
    theirs = owner.post("/saved-templates", BODY).data["id"]
    assert colleague.patch(f"/saved-templates/{theirs}", {"name": "x"}).error == "FORBIDDEN"
    assert colleague.delete(f"/saved-templates/{theirs}").error == "FORBIDDEN"
    assert viewer.delete(path).error == "FORBIDDEN"
    assert colleague.delete(path).status == 200
    assert [one.action for one in AuditEvent.objects.filter(target=template).order_by("pk")] == [
        "saved-template.create", "saved-template.change", "saved-template.change", "saved-template.delete",
    ]  # fmt: skip


def test_a_template_of_the_platform_is_saved_by_administrators_and_used_by_all(admin, owner, stranger, colleague):
    body = {**BODY, "projectId": None}
    assert owner.post("/saved-templates", body).error == "FORBIDDEN"
    template = admin.post("/saved-templates", body).data["id"]
    assert stranger.get("/saved-templates").ids == [template]
    assert owner.patch(f"/saved-templates/{template}", {"name": "x"}).error == "FORBIDDEN"
    made = colleague.post(f"/saved-templates/{template}/tasks", {"values": {"steps": 1}, "projectId": ONE})
    assert Task.objects.get(pk=made.data["taskId"]).project_id == ONE
    answer = stranger.post(f"/saved-templates/{template}/tasks", {"values": {"steps": 1}, "projectId": ONE})
    assert answer.status in (400, 403, 404), "no task in a project of others"
    assert Task.objects.count() == 1


def test_a_task_becomes_a_template_by_naming_what_varies(colleague, stranger, owner):
    source = changed(distributedConfig=None, environmentIds=["env-001"], hyperparameters={"learningRate": 0.1})
    task = colleague.post("/training-tasks", source).data["taskId"]
    parameters = [
        {"name": "lr", "type": "number", "path": "hyperparameters.learningRate"},
        {"name": "data", "type": "datasetVersion", "path": "datasetVersionId"},
        {"name": "where", "type": "environments", "path": "environmentIds"},
    ]
    body = {"name": "again", "taskId": task, "parameters": parameters}
    shown = owner.post("/saved-templates", body).data
    assert shown["projectId"] == ONE
    assert shown["request"]["hyperparameters"] == {"learningRate": "{{lr}}"}
    assert (shown["request"]["datasetId"], shown["request"]["datasetVersionId"]) == ("{{data.dataset}}", "{{data}}")
    assert [one["default"] for one in shown["parameters"]] == [0.1, "version-001", ["env-001"]]
    made = colleague.post(f"/saved-templates/{shown['id']}/tasks").data["taskId"]
    assert Task.objects.get(pk=made).request["hyperparameters"] == {"learningRate": 0.1}
    assert stranger.post("/saved-templates", body).error == "NOT_FOUND"
    body["parameters"] = [{"name": "x", "type": "string", "path": "hyperparameters.unknown"}]
    assert owner.post("/saved-templates", {**body, "name": "n"}).problems == {
        "parameters.0.path": "PARAMETER_PATH_UNKNOWN"
    }


REFUSED = [
    ({"parameters": []}, "request.taskName", "PLACEHOLDER_UNKNOWN"),
    ({"parameters": [*PARAMETERS, {"name": "more", "type": "string"}]}, "parameters.6.name", "PARAMETER_UNUSED"),
    ({"parameters": [*PARAMETERS, PARAMETERS[0]]}, "parameters.6.name", "PARAMETER_TWICE"),
    ({"parameters": [{"name": "rank", "type": "string"}]}, "parameters.0.name", "PARAMETER_NAME_INVALID"),
    (
        {"parameters": [{**PARAMETERS[0], "low": 2, "high": 1}, *PARAMETERS[1:]]},
        "parameters.0.high",
        "PARAMETER_BOUNDS_CROSSED",
    ),
    ({"parameters": [{**PARAMETERS[0], "default": 9}, *PARAMETERS[1:]]}, "parameters.0.default", "PARAMETER_RANGE"),
    (
        {"request": {**REQUEST, "env": {**REQUEST["env"], "API_KEY": "sk-abcdefghijklmnop1234"}}},
        "request.env.API_KEY",
        "TEMPLATE_WITH_SECRET",
    ),
    ({"request": None}, "request", None),
    ({"taskId": "task-x"}, "request", "TEMPLATE_NEEDS_ONE_SOURCE"),
    ({"request": {**REQUEST, "taskName": "at {{nodes}}"}}, "request.taskName", "PLACEHOLDER_NOT_WHOLE"),
]


@pytest.mark.parametrize(("changes", "field", "code"), REFUSED)
def test_a_template_that_could_not_be_filled_is_refused(colleague, changes, field, code):
    answer = colleague.post("/saved-templates", {**BODY, **changes})
    assert answer.status == 400
    assert field in answer.problems
    assert code in (None, answer.problems[field])
    assert not SavedTemplate.objects.exists()


def test_placeholders_of_ranks_stay_as_they_are(colleague):
    request = {**REQUEST, "env": {**REQUEST["env"], "NAME": "{{rank}}-{rank}"}}
    template = colleague.post("/saved-templates", {**BODY, "request": request}).data["id"]
    shown = colleague.post(f"/saved-templates/{template}/preview", {"values": {"steps": 3}}).data
    assert shown["request"]["env"]["NAME"] == "{{rank}}-{rank}"
