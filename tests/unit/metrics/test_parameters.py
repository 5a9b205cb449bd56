"""Parameters as flat names, and conditions on them."""

import pytest

from fermi.metrics.parameters import ParameterCondition, flatten_parameters, format_value, parse_condition


@pytest.mark.parametrize(
    ("text", "condition"),
    [
        ("lr=0.001", ParameterCondition("lr", "=", "0.001", 0.001)),
        ("lr=1e-3", ParameterCondition("lr", "=", "1e-3", 0.001)),
        ("lr > 0.001", ParameterCondition("lr", ">", "0.001", 0.001)),
        ("batch<=64", ParameterCondition("batch", "<=", "64", 64.0)),
        ("optimizer.name=adamw", ParameterCondition("optimizer.name", "=", "adamw", None)),
        ("cmd=a=b", ParameterCondition("cmd", "=", "a=b", None)),
        ("名称=值", ParameterCondition("名称", "=", "值", None)),
        ("note=", ParameterCondition("note", "=", "", None)),
        ("lr=nan", ParameterCondition("lr", "=", "nan", None)),
        *((text, None) for text in ("", "lr", "=1", "lr>x", "lr>nan", "x" * 300 + "=1")),
    ],
)
def test_conditions_are_parsed(text: str, condition: ParameterCondition | None) -> None:
    assert parse_condition(text) == condition


def test_nested_parameters_have_names_with_dots() -> None:
    found = dict(flatten_parameters({"a": {"b": {"c": {"d": {"e": 1}}}}, "list": [1, "二"], "none": None, "on": True}))
    assert found == {"a.b.c.d": '{"e": 1}', "list": '[1, "二"]', "on": True}


def test_a_value_is_text_and_a_number_if_it_is_one() -> None:
    assert [format_value(value) for value in (0.1, 3, "5", True, "adamw", float("inf"))] == [
        ("0.1", 0.1), ("3", 3.0), ("5", 5.0), ("true", None), ("adamw", None), ("inf", None),
    ]  # fmt: skip
