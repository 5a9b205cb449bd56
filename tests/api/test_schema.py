"""The OpenAPI document describes what is served."""

import json
import re
from collections.abc import Iterator
from fnmatch import fnmatchcase
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


def test_the_schema_is_generated_without_warnings(schema: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    assert schema["openapi"].startswith("3.1")
    GENERATOR_STATS.emit_summary()
    assert capsys.readouterr().err == ""
    validate_schema(schema)


def test_every_operation_has_a_unique_id_and_a_description(schema: dict[str, Any]) -> None:
    names = [operation["operationId"] for _, _, operation in operations(schema)]
    assert len(names) == len(set(names))
    assert all(operation.get("description") for _, _, operation in operations(schema))
    assert all(name.isalnum() and name[0].islower() for name in names), "camelCase, for generated clients"


def test_every_answer_uses_the_envelopes(schema: dict[str, Any]) -> None:
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


def test_everyone_may_read_the_schema(anonymous: Api) -> None:
    assert json.loads(anonymous.get("/schema").body)["info"]["title"] == "Fermi"
    assert b"swagger" in anonymous.get("/docs").body.lower()


# What comes in is bounded --------------------------------------------------------------------------------------------
UNBOUNDED = {
    "* path.*": "looked up as it is; what is too long is not there: 404",
    "streamTask header.Last-Event-ID": "what is no position of ours begins anew",
    "workerHeartbeat *.usage.*": "from a worker of any version; kept as it is, and only shown",
    "workerHeartbeat *.endedAt": "a time by another host's clock, which is only compared and shown",
    "workerHeartbeat *.stillSince": "the same",
}
"""Patterns of inputs that have no bound in the document, with the reason."""
BOUNDED_FORMATS = {"date-time", "ipv4", "ipv6"}


def test_every_input_is_bounded_or_exempt_with_a_reason(schema: dict[str, Any]) -> None:
    """Texts in length, numbers in size, lists and maps in number: nothing reaches a column, a file system or a loop
    that would not hold it."""
    found = {name for _, _, operation in operations(schema) for name in unbounded(schema, operation)}
    reasons = {name: [pattern for pattern in UNBOUNDED if fnmatchcase(name, pattern)] for name in found}
    assert sorted(name for name, patterns in reasons.items() if not patterns) == []
    used = {pattern for patterns in reasons.values() for pattern in patterns}
    assert used == set(UNBOUNDED), "reasons for nothing"


def test_an_unbounded_input_is_detected() -> None:
    body = {
        "type": "object",
        "properties": {
            "free": {"type": "string"}, "short": {"type": "string", "maxLength": 9}, "few": {"enum": ["a"]},
            "shaped": {"type": "string", "pattern": "^[a-z]{1,9}$"}, "loose": {"type": "string", "pattern": "[a-z]"},
            "half": {"type": ["integer", "null"], "minimum": 0}, "list": {"type": "array", "items": {"type": "number"}},
        },
        "additionalProperties": {"type": "string"},
    }  # fmt: skip
    operation = {"operationId": "make", "requestBody": {"content": {"application/json": {"schema": body}}}}
    names = {"make ", "make free", "make loose", "make half", "make list", "make list[]", "make *"}
    assert set(unbounded({}, operation)) == names


def unbounded(document: dict[str, Any], operation: dict[str, Any]) -> Iterator[str]:
    """Names of all inputs of an operation that have no bound."""
    for parameter in operation.get("parameters", []):
        name = f"{operation['operationId']} {parameter['in']}.{parameter['name']}"
        yield from _unbounded(document, parameter["schema"], name)
    for media, content in operation.get("requestBody", {}).get("content", {}).items():
        if media == "application/json":
            yield from _unbounded(document, content["schema"], f"{operation['operationId']} ")


def _unbounded(document: dict[str, Any], schema: dict[str, Any], name: str) -> Iterator[str]:
    if "$ref" in schema:
        schema = document["components"]["schemas"][schema["$ref"].rsplit("/", 1)[1]]
    for part in (part for word in ("allOf", "anyOf", "oneOf") for part in schema.get(word, [])):
        yield from _unbounded(document, part, name)
    kinds = schema["type"] if isinstance(schema.get("type"), list) else [schema.get("type")]
    if "enum" not in schema and not all(_is_bounded(kind, schema) for kind in kinds):
        yield name
    if "array" in kinds:
        yield from _unbounded(document, schema["items"], f"{name}[]")
    inner = {**schema.get("properties", {}), "*": schema.get("additionalProperties")}
    for key, part in inner.items():
        if isinstance(part, dict):
            yield from _unbounded(document, part, f"{name}{key}" if name.endswith(" ") else f"{name}.{key}")


def _is_bounded(kind: str | None, schema: dict[str, Any]) -> bool:
    match kind:
        case "integer" | "number":
            return "minimum" in schema and "maximum" in schema
        case "string":
            return "maxLength" in schema or schema.get("format") in BOUNDED_FORMATS or _is_closed(schema)
        case "array":
            return "maxItems" in schema
        case "object":
            return schema.get("additionalProperties") is False or "maxProperties" in schema
    return True


def _is_closed(schema: dict[str, Any]) -> bool:
    """A pattern of the whole text, without an end that is open."""
    whole = re.fullmatch(r"\^(.*)\$", schema.get("pattern", ""))
    return bool(whole and not re.search(r"(?<!\\)[*+]|,\}", re.sub(r"\[[^]]*\]", "x", whole[1])))
