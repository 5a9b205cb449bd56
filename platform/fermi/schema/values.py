"""Describes what a value may be: `a whole number, at least 0 and at most 3`."""

from collections.abc import Iterable
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


def describe_type(
    name: str, *, minimum: Any = None, maximum: Any = None, above: Any = None, below: Any = None
) -> NestedText:  # fmt: skip
    """Return the description of a JSON Schema type `name` with its bounds; None is no bound."""
    what = NestedText(TYPE_CODES.get(name, "VALUE_ANY"))
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


def describe_choices(choices: Iterable[object]) -> NestedText:
    """Return the description of a choice among values."""
    return NestedText("VALUE_ONE_OF", {"choices": " | ".join(map(str, choices))})
