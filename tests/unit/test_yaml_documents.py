"""YAML from anywhere, with JSON's types."""

from typing import Any

import pytest

from fermi.yaml_documents import MAX_NODES, YamlDocumentError, read_object


def test_values_have_the_types_of_json() -> None:
    text = "on: off\nday: 2026-01-01\nlr: 1e-4\nlayers: 3\nflag: true\nnone: null\n1: {2.5: x, true: y}\n"
    assert read_object(text) == {
        "on": "off",
        "day": "2026-01-01",
        "lr": 0.0001,
        "layers": 3,
        "flag": True,
        "none": None,
        "1": {"2.5": "x", "true": "y"},
    }
    assert read_object('{"a": [1, "x"]}') == {"a": [1, "x"]}
    assert read_object("base: &b {lr: 1}\nmore: {<<: *b, wd: 2}")["more"] == {"lr": 1, "wd": 2}


BOMB = "a0: &a0 [x, x]\n" + "".join(f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]\n" for n in range(1, 30))
MERGE_BOMB = "a0: &a0 {x: 1}\n" + "".join(f"a{n}: &a{n} {{<<: [*a{n - 1}, *a{n - 1}]}}\n" for n in range(1, 30))


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("", "YAML_NOT_OBJECT"), ("- 1", "YAML_NOT_OBJECT"), ("lr", "YAML_NOT_OBJECT"),
        ("a: b: c", "YAML_UNREADABLE"), ("a: [1", "YAML_UNREADABLE"), ("a: *b", "YAML_UNREADABLE"),
        ("a: 1\n---\nb: 2", "YAML_UNREADABLE"), ("a: !!python/object:os.system x", "YAML_UNREADABLE"),
        ("a: !!int x", "YAML_UNREADABLE"), ("a: !!bool x", "YAML_UNREADABLE"), ("a: \x07", "YAML_UNREADABLE"),
        ("a: !!binary é", "YAML_UNREADABLE"), ("? [1, 2]\n: x", "YAML_UNREADABLE"),
        ("a: " + "9" * 5000, "YAML_UNREADABLE"),
        ("a: !!timestamp 2026-01-01", "YAML_VALUE"), ("a: 1e999", "YAML_VALUE"), ("a: !!float .nan", "YAML_VALUE"),
        ("a: !!set {x, y}", "YAML_VALUE"), ("a: !!binary aGk=", "YAML_VALUE"), ("null: 1", "YAML_VALUE"),
        ("a: " + "[" * 60 + "]" * 60, "YAML_TOO_LARGE"), ("a: " + "[" * 5000, "YAML_TOO_LARGE"),
        ("a: &a [*a]", "YAML_TOO_LARGE"), (BOMB, "YAML_TOO_LARGE"), (MERGE_BOMB, "YAML_TOO_LARGE"),
        ("a: [" + "1," * MAX_NODES + "]", "YAML_TOO_LARGE"),
    ],
)  # fmt: skip
def test_what_is_no_object_of_json_is_refused_with_a_code(text: str, code: str) -> None:
    with pytest.raises(YamlDocumentError) as refused:
        read_object(text)
    assert refused.value.code == code


def test_a_mistake_names_its_line() -> None:
    with pytest.raises(YamlDocumentError) as refused:
        read_object("a: 1\nb: c: d\n")
    params: dict[str, Any] = refused.value.params
    assert params["line"] == 2
