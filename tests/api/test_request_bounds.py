"""How much one request may hold, and that nothing is done with what is more (`apps.common.bounds`)."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from django.http import QueryDict
from drf_spectacular.generators import EndpointEnumerator, SchemaGenerator
from rest_framework import serializers

from apps.common import bounds, request_shapes
from apps.common.errors import ProblemsError
from apps.environments.models import Template
from apps.training.presenters import event_stream
from fermi.planning.request import MAX_VARIABLES
from fermi.schema import suggestions
from tests.api.conftest import Api
from tests.api.test_tasks_create import changed

pytestmark = pytest.mark.database

HEARTBEAT = "/workers/heartbeat"


def raw(api: Api, path: str, body: bytes) -> Any:
    headers = {"Authorization": f"Bearer {api.token}"} if api.token else {}
    return api.client.post(f"/api/v1{path}", body, content_type="application/json", headers=headers)


@pytest.fixture
def nothing_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """No serializer looks at an item of a body. An address without parameters is known already."""
    request_shapes.parse_query(request_shapes.Strict, QueryDict())

    def looks(*_: Any, **__: Any) -> None:
        raise AssertionError("it was looked at")

    for kind in (serializers.Serializer, serializers.ListField, serializers.DictField):
        monkeypatch.setattr(kind, "run_validation", looks)
    monkeypatch.setattr(serializers.Serializer, "is_valid", looks)
    monkeypatch.setattr(suggestions, "suggest_field", looks)


# Before any work ------------------------------------------------------------------------------------------------------
@pytest.mark.usefixtures("nothing_is_read")
@pytest.mark.parametrize("entry", ["{}", '{"id":"gn6-0","token":"x"}', '{"id":1}', "0"])
def test_a_heartbeat_of_150_000_entries_is_refused_before_parsing(anonymous: Api, entry: str) -> None:
    answer = raw(anonymous, HEARTBEAT, f'{{"workers":[{",".join([entry] * 150_000)}]}}'.encode())
    assert answer.status_code in (400, 413)
    assert len(answer.content) < 1000
    assert answer.json()["error"] in ("BODY_TOO_LARGE", "BODY_TOO_MANY_VALUES", "INVALID_REQUEST")


@pytest.mark.usefixtures("nothing_is_read")
def test_a_heartbeat_with_more_workers_than_a_host_has_is_refused_before_parsing(anonymous: Api) -> None:
    answer = anonymous.post(HEARTBEAT, {"workers": [{"id": 1}] * 1025})
    assert (answer.status, answer.problems) == (400, {"workers": "FIELD_LENGTH"})


@pytest.mark.usefixtures("environments", "dataset", "model")
@pytest.mark.parametrize("field", ["env", "secretEnv", "hyperparameters"])
def test_variables_per_task_are_limited(colleague: Api, field: str) -> None:
    asked = changed(**{field: {f"V{number}": "x" for number in range(MAX_VARIABLES + 1)}})
    assert colleague.post("/training-tasks", asked).problems[field] == "FIELD_LENGTH"
    found = colleague.post("/training-tasks/preview", asked).data["problems"]
    assert (field, "FIELD_LENGTH") in [(one["field"], one["error"]) for one in found]


@pytest.mark.usefixtures("nothing_is_read")
def test_a_task_of_60_000_names_is_refused_before_parsing(colleague: Api) -> None:
    answer = colleague.post("/training-tasks", {f"V{number}": 1 for number in range(60_000)})
    assert (answer.status, answer.problems) == (400, {"": "FIELD_LENGTH"})


class Part(serializers.Serializer):
    name = serializers.CharField(max_length=5)


class Whole(serializers.Serializer):
    parts = serializers.ListField(child=Part(), max_length=3, required=False)
    many = Part(many=True, required=False)
    names = serializers.DictField(child=serializers.CharField(), required=False)
    free = serializers.JSONField(required=False)


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"parts": [{}] * 4}, "parts"),
        ({"many": [{}] * (bounds.MAX_ITEMS + 1)}, "many"),
        ({"names": dict.fromkeys(map(str, range(bounds.MAX_ENTRIES + 1)), 1)}, "names"),
        ({"free": {"deep": [[0] * (bounds.MAX_ITEMS + 1)]}}, "free.deep.0"),
        ({"parts": [dict.fromkeys(map(str, range(bounds.MAX_NAMES + 1)))]}, "parts.0"),
        (dict.fromkeys(map(str, range(bounds.MAX_NAMES + 1))), ""),
    ],
)
def test_too_long_values_are_refused_before_validation(monkeypatch: pytest.MonkeyPatch, body: Any, field: str) -> None:
    monkeypatch.setattr(Whole, "is_valid", None)
    with pytest.raises(ProblemsError) as refused:
        request_shapes.parse_body(Whole, body)
    assert [(one.field, one.code) for one in refused.value.problems] == [(field, "FIELD_LENGTH")]


def test_values_are_counted_without_parsing_them() -> None:
    many = bounds.MAX_VALUES
    for text in (b"[" * (many + 1), b"[" + b"0," * many + b"0]", b'{"a":' + b"[{}," * many):
        assert bounds.has_too_many_values(text)
    assert not bounds.has_too_many_values(json.dumps({"patch": "x, [y] " * 30_000}).encode())


@pytest.mark.usefixtures("environments", "dataset", "model")
def test_followed_tasks_per_user_are_limited(colleague: Api, owner: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    assert colleague.user
    task = colleague.post("/training-tasks", changed()).data["taskId"]
    monkeypatch.setattr(event_stream.OPEN_STREAMS, "most", 1)
    with event_stream.OPEN_STREAMS.one(colleague.user.pk):
        refused = colleague.get(f"/training-tasks/{task}/stream")
        assert (refused.status, refused.error) == (429, "STREAMS_TOO_MANY")
        assert owner.get(f"/training-tasks/{task}/stream").status == 200
    assert colleague.get(f"/training-tasks/{task}/stream").status == 200


# Answers --------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("count", [bounds.MAX_PROBLEMS, bounds.MAX_PROBLEMS + 1])
def test_an_answer_lists_at_most_100_problems(anonymous: Api, count: int) -> None:
    beats = [{"id": "w", "token": "t", "incarnation": "i", "sequence": 1, "generation": 1} for _ in range(count)]
    for beat in beats:
        del beat["token"]
    answer = Api(lang="en").post(HEARTBEAT, {"workers": beats})
    *problems, last = answer.body["errors"]
    assert len(problems) == bounds.MAX_PROBLEMS - 1
    assert {one["error"] for one in problems} == {"FIELD_REQUIRED"}
    if count > bounds.MAX_PROBLEMS:
        assert (last["field"], last["error"]) == ("", "MORE_PROBLEMS")
        assert "At least 2 more" in last["message"]


@pytest.mark.usefixtures("environments", "dataset", "model")
def test_a_preview_lists_at_most_100_problems(colleague: Api) -> None:
    wrong = changed(environmentIds=[], distributedConfig={"nodeIds": [1] * 150})
    problems = colleague.post("/training-tasks/preview", wrong).data["problems"]
    assert len(problems) == bounds.MAX_PROBLEMS
    assert problems[-1]["error"] == "MORE_PROBLEMS"


# Changing a part ------------------------------------------------------------------------------------------------------
@pytest.fixture
def template(owner: Api) -> str:
    asked = {"name": "notes", "projectId": "project-one", "kind": "jupyter", "ports": [{"name": "web", "port": 8080}]}
    key: str = owner.post("/environment-templates", asked).data["id"]
    return key


@pytest.mark.parametrize(("item", "field"), [({"name": "0"}, "ports.0.port"), ({"port": 80}, "ports.0.name")])
def test_items_of_a_list_in_a_change_must_be_complete(owner: Api, template: str, item: Any, field: str) -> None:
    answer = owner.patch(f"/environment-templates/{template}", {"ports": [item]})
    assert (answer.status, answer.problems) == (400, {field: "FIELD_REQUIRED"})
    assert Template.objects.get(pk=template).ports == [{"name": "web", "port": 8080}]


def changing() -> dict[str, type[serializers.Serializer]]:
    """The bodies of all operations that change what is there, by operation."""
    generator = SchemaGenerator()
    found = {}
    for path, _, method, callback in EndpointEnumerator().get_api_endpoints():
        if method in ("PATCH", "PUT"):
            view = generator.create_view(callback, method)
            body = view.schema.get_request_serializer()
            if isinstance(body, type) and issubclass(body, serializers.Serializer):
                found[f"{method} {path}"] = body
    return found


def parts(field: Any, path: str, empty: Any) -> Iterator[tuple[str, Any]]:
    """Of a field with objects in it: a value in which one of them is empty, and the paths of what that leaves out."""
    if isinstance(field, serializers.ListField | serializers.ListSerializer):
        yield from ((name, [value]) for name, value in parts(field.child, f"{path}.0", empty))
    elif isinstance(field, serializers.Serializer):
        yield from ((f"{path}.{name}", empty) for name, inner in field.fields.items() if inner.required)
        for name, inner in field.fields.items():
            yield from ((deeper, {name: value}) for deeper, value in parts(inner, f"{path}.{name}", empty))


def test_every_list_in_a_change_needs_complete_items() -> None:
    bodies = changing()
    assert "PATCH /api/v1/environment-templates/{template_id}" in bodies
    tried = 0
    for operation, body in bodies.items():
        for name, field in body().fields.items():
            for missing, value in parts(field, name, {}):
                tried += 1
                with pytest.raises(ProblemsError) as refused:
                    request_shapes.parse_body(body, {name: value}, partial=operation.startswith("PATCH"))
                named = {one.field: one.code for one in refused.value.problems}
                assert named.get(missing) == "FIELD_REQUIRED", (operation, missing)
    assert tried > 2
