"""The shape of a request: all that is wrong at once, and what is left without it."""

import json
import re
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fermi import messages
from fermi.export import request as by_hand
from fermi.export.request import ExportRequest
from fermi.jobs import json_shape
from fermi.planning import request
from fermi.planning.request import TaskRequest
from fermi.preflight import LEVELS

DOCUMENT = json.loads((Path(__file__).parents[3] / "docs/openapi.json").read_text("utf-8"))


def wrong(data: dict[Any, Any], kind: type = TaskRequest) -> dict[str, str]:
    return {problem.field: problem.code for problem in json_shape.read_object(kind, data)[1]}


def left(data: dict[str, Any]) -> TaskRequest:
    return json_shape.read_object(TaskRequest, data)[0]


def test_an_empty_request_has_the_defaults() -> None:
    assert wrong({}) == {}
    assert left({}) == TaskRequest()


def test_both_regex_engines_agree_on_blank_texts() -> None:
    """Python's `re`, and the engine that knows the standard's white space: a text of U+001F alone was refused, and the
    document allowed it."""
    standard = jsonschema_rs.validator_for({"pattern": json_shape.NOT_BLANK_PATTERN})
    for letter in map(chr, (*range(0xD800), *range(0xE000, 0x10000))):
        full = bool(letter.strip())
        assert (bool(re.search(json_shape.NOT_BLANK_PATTERN, letter)), standard.is_valid(letter)) == (full, full), (
            ascii(letter)
        )
    assert wrong({"taskName": "\x1f"}) == {"taskName": "NAME_REQUIRED"}


def test_all_problems_are_reported_together() -> None:
    assert wrong(
        {
            "taskName": 7,
            "datasetId": None,
            "launchMode": None,
            "maxRestarts": 101,
            "graceSeconds": -1,
            "preflight": "thorough",
            "environmentIds": ["env-1", ""],
            "env": {"A": 1, "B": "b"},
            "entrypoint": {"script": 5},
            "colour": "red",
            "distributedConfig": {"framework": " ", "masterPort": 80, "strategy": {"dataParallel": 0}, "nodes": []},
        }
    ) == {
        "taskName": "WRONG_TYPE",
        "launchMode": "FIELD_NULL",
        "maxRestarts": "MAX_RESTARTS_OUT_OF_RANGE",
        "graceSeconds": "FIELD_RANGE",
        "preflight": "FIELD_CHOICE",
        "environmentIds.1": "FIELD_BLANK",
        "env.A": "WRONG_TYPE",
        "entrypoint.script": "WRONG_TYPE",
        "colour": "UNKNOWN_FIELD",
        "distributedConfig.framework": "FRAMEWORK_REQUIRED",
        "distributedConfig.masterPort": "PORT_OUT_OF_RANGE",
        "distributedConfig.strategy.dataParallel": "FIELD_RANGE",
        "distributedConfig.nodes": "UNKNOWN_FIELD",
    }


def test_invalid_values_are_left_out_and_the_rest_kept() -> None:
    found = left(
        {
            "taskName": " night ",
            "env": {"A": 1, "B": " b "},
            "environmentIds": ["env-1", 2],
            "maxRestarts": 5.0,
            "entrypoint": {"args": ["--x"]},
            "distributedConfig": {"masterPort": 80, "worldSize": 4},
        }
    )
    assert (found.task_name, found.env, found.environment_ids) == ("night", {"B": " b "}, ())
    assert (found.max_restarts, found.distributed.world_size) == (5, 4)
    assert (found.entrypoint.script, found.entrypoint.args) == ("", ("--x",)) if found.entrypoint else False


@pytest.mark.parametrize(
    ("data", "problems"),
    [
        ({"environmentIds": "env-1"}, {"environmentIds": "FIELD_INVALID"}),
        ({"hyperparameters": []}, {"hyperparameters": "FIELD_INVALID"}),
        ({"entrypoint": "train.py"}, {"entrypoint": "FIELD_INVALID"}),
        ({"maxRestarts": True}, {"maxRestarts": "WRONG_TYPE"}),
        ({"maxRestarts": 2.5}, {"maxRestarts": "WRONG_TYPE"}),
        ({"graceSeconds": float("inf")}, {"graceSeconds": "FIELD_RANGE"}),
        ({"graceSeconds": float("nan")}, {"graceSeconds": "WRONG_TYPE"}),
        ({"hyperparameters": {"a": float("nan")}}, {}),
        ({"env": {1: "one"}, 2: "two"}, {"2": "UNKNOWN_FIELD"}),
        ({"taskName": "\ud800", "env": {"\ud800": "\ud800"}}, {}),
        ({"priority": 10**400}, {"priority": "FIELD_RANGE"}),
        ({"taskName": "x" * 101}, {"taskName": "NAME_TOO_LONG"}),
        ({"taskName": "  "}, {"taskName": "NAME_REQUIRED"}),
        ({"resumeFrom": "/" * 501}, {"resumeFrom": "FIELD_LENGTH"}),
        ({"environmentIds": ["e"] * 4097}, {"environmentIds": "FIELD_LENGTH"}),
        (
            {"distributedConfig": {"select": {"labels": {str(number): "x" for number in range(33)}}}},
            {"distributedConfig.select.labels": "FIELD_LENGTH"},
        ),
        ({"distributedConfig": {"worldSize": 0}}, {}),
    ],
)
def test_a_value_of_another_type_is_named(data: dict[Any, Any], problems: dict[str, str]) -> None:
    assert wrong(data) == problems


@pytest.mark.parametrize("lang", messages.LANGUAGES)
def test_every_shape_problem_has_a_text(lang: str) -> None:
    data = {
        "taskName": "x" * 101, "maxRestarts": -1, "graceSeconds": 1e9, "preflight": "?", "resumeFrom": "/" * 501,
        "environmentIds": {}, "spareEnvironmentIds": ["e"] * 4097, "env": {"A": None}, "secretEnv": {"A": ""},
        "entrypoint": {"script": ""}, "no": 1, "priority": "soon",
    }  # fmt: skip
    found = json_shape.read_object(TaskRequest, data)[1]
    assert len(found) == len(data)
    for problem in found:
        message, hint = messages.render_text(problem.code, lang, **problem.params)
        assert message
        assert hint
        assert messages.MISSING_VALUE not in message + hint


def test_export_accepts_the_platforms_requests() -> None:
    """One file is good for `fermi submit` and `fermi render`."""
    ours, theirs = (json_shape.build_schema(kind)["properties"] for kind in (TaskRequest, ExportRequest))
    assert {name: theirs[name] for name in ours} == ours
    assert wrong({}, ExportRequest) == {"nodes": "NODES_REQUIRED"}
    assert wrong({"nodes": []}, ExportRequest) == {"nodes": "NODES_REQUIRED"}
    assert wrong({"nodes": [{"name": "gpu-a", "gpus": 2}]}, ExportRequest) == {"nodes.0.gpus": "UNKNOWN_FIELD"}


def test_an_exported_world_size_counts_and_configs_are_enabled() -> None:
    nodes = [{"name": "gpu-a", "gpuCount": 2}, {"name": "gpu-b", "gpuCount": 4}]
    config = {"enabled": False, "worldSize": 3, "masterNode": "gpu-a", "masterPort": 29600}
    job, wrong = by_hand.build_job({"nodes": nodes, "trainData": "/d", "distributedConfig": config})
    assert job
    assert (wrong, job.world_size, [node.processes for node in job.nodes], job.master_port) == ([], 3, [2, 1], 29600)


def test_the_openapi_document_equals_the_class() -> None:
    """Names, types, defaults and bounds; what only the command line reads is not in it."""
    schemas = DOCUMENT["components"]["schemas"]
    theirs = schemas["TaskCreateRequest"]["properties"]
    assert theirs.keys() == json_shape.build_schema(TaskRequest)["properties"].keys()
    assert theirs["maxRestarts"] == {
        "type": "integer",
        "minimum": 0,
        "maximum": request.MAX_RESTARTS_LIMIT,
        "default": 3,
        "x-codes": dict.fromkeys(("minimum", "maximum"), "MAX_RESTARTS_OUT_OF_RANGE"),
    }
    assert theirs["graceSeconds"]["default"] == 30.0
    assert not any(word in json.dumps(schemas) for word in json_shape.PRIVATE_KEYWORDS)


def test_preflight_levels_equal_those_of_the_tests() -> None:
    assert json_shape.build_schema(TaskRequest)["properties"]["preflight"]["enum"] == ["off", *LEVELS]


ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(), max_size=5) | st.just("\ud800"),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3) | st.just("\ud800"), inner, max_size=3)
    ),
    max_leaves=8,
)
NAMES = st.sampled_from([*json_shape.build_schema(ExportRequest)["properties"], "other"])
CONFIG = st.sampled_from(
    [*json_shape.build_schema(TaskRequest)["properties"]["distributedConfig"]["properties"], "other"]
)


@given(st.dictionaries(NAMES, ANY | st.dictionaries(CONFIG, ANY, max_size=4), max_size=6))
def test_any_input_is_read_without_its_invalid_parts(data: dict[str, Any]) -> None:
    for kind in (TaskRequest, ExportRequest):
        found, problems = json_shape.read_object(kind, data)
        assert isinstance(found, kind)
        for problem in problems:
            assert messages.render_text(problem.code, "en", **problem.params)[0]


@pytest.mark.parametrize(
    ("schema", "unchecked"),
    [
        ({"type": "integer", "multipleOf": 2}, "multipleOf"),
        ({"type": "object", "properties": {"a": {"type": "array", "items": {"const": 1}}}}, "const"),
        ({"type": "object", "additionalProperties": {"anyOf": [{"format": "uri"}]}}, "format"),
        ({"enum": [1, 2]}, r"\[1, 2\]"),
    ],
)
def test_a_plug_ins_schema_with_rules_that_are_not_checked_is_refused(schema: dict[str, Any], unchecked: str) -> None:
    with pytest.raises(TypeError, match=unchecked):
        json_shape.refuse_unknown_keywords(schema)


@pytest.mark.parametrize(
    ("schema", "value", "problems"),
    [
        ({"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1}, 0, {"at": "FIELD_RANGE"}),
        ({"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1}, 1, {"at": "FIELD_RANGE"}),
        ({"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1}, 0.5, {}),
        ({"type": "number"}, float("inf"), {"at": "FIELD_RANGE"}),
        ({"type": ["string", "integer"]}, 1, {}),
        ({"type": ["string", "integer"]}, 1.5, {"at": "WRONG_TYPE"}),
        ({"enum": ["a", "b"]}, "c", {"at": "FIELD_CHOICE"}),
        ({"enum": ["a", "b"]}, 1, {"at": "WRONG_TYPE"}),
        ({"type": "object", "minProperties": 1}, {}, {"at": "FIELD_BLANK"}),
        ({"type": "object", "additionalProperties": True}, {"a": 1}, {}),
        ({"type": "object", "required": ["a"]}, {}, {"at.a": "FIELD_REQUIRED"}),
        ({"anyOf": [{"type": "string"}, {"type": "object", "required": ["a"]}]}, {}, {"at.a": "FIELD_REQUIRED"}),
        ({"anyOf": [{"type": "string"}, {"type": "object"}]}, 1, {"at": "WRONG_TYPE"}),
        ({"type": "array"}, [1, None], {}),
    ],
)
def test_a_value_is_checked_by_a_plug_ins_schema(schema: dict[str, Any], value: Any, problems: dict[str, str]) -> None:
    assert {one.field: one.code for one in json_shape.find_problems(schema, value, "at")} == problems
    standard = jsonschema_rs.validator_for(schema)
    if value != float("inf"):
        assert standard.is_valid(value) == (not problems)
