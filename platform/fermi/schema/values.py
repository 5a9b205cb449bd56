"""Describes what a value may be: `a whole number, at least 0 and at most 3`."""

from collections.abc import Iterable
from typing import Any

from fermi.messages import Words

KINDS = {
    "boolean": "VALUE_BOOLEAN",
    "integer": "VALUE_INTEGER",
    "number": "VALUE_NUMBER",
    "string": "VALUE_STRING",
    "array": "VALUE_ARRAY",
    "object": "VALUE_OBJECT",
}


def kind(
    name: str, *, minimum: Any = None, maximum: Any = None, above: Any = None, below: Any = None
) -> Words:  # fmt: skip
    """Return the description of a JSON Schema type `name` with its bounds; None is no bound."""
    what = Words(KINDS.get(name, "VALUE_ANY"))
    low = Words("BOUND_FROM", {"value": minimum}) if minimum is not None else None
    low = Words("BOUND_ABOVE", {"value": above}) if above is not None else low
    high = Words("BOUND_TO", {"value": maximum}) if maximum is not None else None
    high = Words("BOUND_BELOW", {"value": below}) if below is not None else high
    if low and high:
        return Words("VALUE_BOUNDED", {"kind": what, "bounds": Words("BOUND_BOTH", {"low": low, "high": high})})
    if low or high:
        return Words("VALUE_BOUNDED", {"kind": what, "bounds": low or high})
    return what


def one_of(choices: Iterable[object]) -> Words:
    """Return the description of a choice among values."""
    return Words("VALUE_ONE_OF", {"choices": " | ".join(map(str, choices))})
