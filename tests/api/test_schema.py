"""The OpenAPI document describes what is served."""

import json
from typing import Any

import pytest
from drf_spectacular.drainage import GENERATOR_STATS
from drf_spectacular.generators import SchemaGenerator
from drf_spectacular.validation import validate_schema

from tests.api.conftest import Api


@pytest.fixture(scope="module")
def schema() -> dict[str, Any]:
    GENERATOR_STATS.reset()
    return SchemaGenerator().get_schema(request=None, public=True)


def operations(schema: dict[str, Any]) -> list[tuple[str, str, dict[str, Any]]]:
    return [(path, method, o) for path, methods in schema["paths"].items() for method, o in methods.items()]


def test_it_is_made_without_a_warning(schema: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    assert schema["openapi"].startswith("3.1")
    GENERATOR_STATS.emit_summary()
    assert capsys.readouterr().err == ""
    validate_schema(schema)


def test_every_operation_has_a_name_of_its_own_and_says_what_it_does(schema: dict[str, Any]) -> None:
    names = [operation["operationId"] for _, _, operation in operations(schema)]
    assert len(names) == len(set(names))
    assert all(operation.get("description") for _, _, operation in operations(schema))
    assert all(name.isalnum() and name[0].islower() for name in names), "camelCase, for generated clients"


def test_every_answer_is_an_envelope_and_every_error_the_error_envelope(schema: dict[str, Any]) -> None:
    parts = schema["components"]["schemas"]
    for path, method, operation in operations(schema):
        answers = operation["responses"]
        assert answers["default"]["content"]["application/json"]["schema"]["$ref"].endswith("/ErrorEnvelope")
        [(status, answer)] = [(code, answer) for code, answer in answers.items() if code != "default"]
        for media, content in answer["content"].items():
            if media == "application/json":
                name = content["schema"]["$ref"].rsplit("/", 1)[1]
                assert {"code", "message", "data"} <= set(parts[name]["properties"]), (method, path, status)


def test_every_page_has_the_same_shape(schema: dict[str, Any]) -> None:
    parts = schema["components"]["schemas"]
    pages = {name: part for name, part in parts.items() if name.endswith("Page") and name.removesuffix("Page") in parts}
    assert "EnvironmentItemPage" in pages
    for part in pages.values():
        assert set(part["properties"]) >= {"items", "total", "page", "pageSize"}


def test_everyone_may_read_it(anonymous: Api) -> None:
    assert json.loads(anonymous.get("/schema").body)["info"]["title"] == "Fermi"
    assert b"swagger" in anonymous.get("/docs").body.lower()
