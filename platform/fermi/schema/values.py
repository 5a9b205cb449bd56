"""Describes what a value may be: `a whole number, at least 0 and at most 3`."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from fermi.messages import NestedText

TYPE_CODES = {
    "boolean": "VALUE_BOOLEAN",
    "integer": "VALUE_INTEGER",
    "number": "VALUE_NUMBER",
    "string": "VALUE_STRING",
    "array": "VALUE_ARRAY",
    "object": "VALUE_OBJECT",
}


def describe_type(rule: Mapping[str, Any]) -> NestedText:
    """Return the description of the type that a JSON Schema asks for, with its bounds."""
    what = NestedText(TYPE_CODES.get(next(iter(list_types(rule)), ""), "VALUE_ANY"))
    minimum, maximum = rule.get("minimum"), rule.get("maximum")
    above, below = rule.get("exclusiveMinimum"), rule.get("exclusiveMaximum")
    low = NestedText("BOUND_FROM", {"value": minimum}) if minimum is not None else None
    low = NestedText("BOUND_ABOVE", {"value": above}) if above is not None else low
    high = NestedText("BOUND_TO", {"value": maximum}) if maximum is not None else None
    high = NestedText("BOUND_BELOW", {"value": below}) if below is not None else high
    if low and high:
        return NestedText(
            "VALUE_BOUNDED", {"kind": what, "bounds": NestedText("BOUND_BOTH", {"low": low, "high": high})}
        )
    if low or high:
        return NestedText("VALUE_BOUNDED", {"kind": what, "bounds": low or high})
    return what


def list_types(rule: Mapping[str, Any]) -> Sequence[str]:
    """Return the JSON types that a schema allows; choices are texts."""
    kinds = rule.get("type", ("string",) if "enum" in rule else ())
    return (kinds,) if isinstance(kinds, str) else kinds


def describe_choices(choices: Iterable[object]) -> NestedText:
    """Return the description of a choice among values."""
    return NestedText("VALUE_ONE_OF", {"choices": " | ".join(map(str, choices))})
