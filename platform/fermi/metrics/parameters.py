"""Parameters of a task: what a script was configured with, as flat names with values, and conditions on them. Pure."""

import json
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from fermi.schema import sanitize

REQUEST = "request"
"""Source of hyperparameters in a task's request; other sources are names of trackers."""
MAX_PARAMETERS = 500
"""Per task."""
MAX_NAMES, MAX_NAME_LENGTH, MAX_VALUE_LENGTH, MAX_DEPTH = 1000, 200, 1000, 4
_CONDITION = re.compile(r"([^=<>]{1,200})(>=|<=|=|<|>)(.{0,1000})", re.DOTALL)

ParameterValue = str | int | float | bool


@dataclass(frozen=True, slots=True)
class ParameterCondition:
    """A condition such as `lr>0.001`. `operator`: `=`, `<`, `<=`, `>` or `>=`. `number`: None if the value is none."""

    name: str
    operator: str
    value: str
    number: float | None


def flatten_parameters(found: Any, prefix: str = "", depth: int = 1) -> Iterator[tuple[str, ParameterValue]]:
    """Yield the parameters in an object; nested names are joined with dots. Lists, and what is nested too deeply, are
    their JSON; nulls are left out."""
    if not isinstance(found, dict):
        return
    for name, value in list(found.items())[:MAX_NAMES]:
        whole = _clean(prefix + str(name), MAX_NAME_LENGTH)
        match value:
            case dict() if value and depth < MAX_DEPTH:
                yield from flatten_parameters(value, f"{whole}.", depth + 1)
            case str():
                yield whole, _clean(value, MAX_VALUE_LENGTH)
            case bool() | int() | float():
                yield whole, value
            case list() | dict():
                yield whole, _clean(json.dumps(value, ensure_ascii=False), MAX_VALUE_LENGTH)


def format_value(value: ParameterValue) -> tuple[str, float | None]:
    """Return a value as text, and as a number if it is one."""
    if isinstance(value, bool):
        return str(value).lower(), None
    if isinstance(value, str):
        return value, _parse_number(value)
    return str(value)[:MAX_VALUE_LENGTH], _parse_number(value)


def parse_condition(text: str) -> ParameterCondition | None:
    """Return the condition; None if the text is none, or compares with what is no number."""
    found = _CONDITION.fullmatch(text)
    if found is None:
        return None
    name, operator, value = (part.strip() for part in found.groups())
    number = _parse_number(value)
    if not name or (number is None and operator != "="):
        return None
    return ParameterCondition(name, operator, value, number)


def _parse_number(value: str | float) -> float | None:
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def _clean(text: str, length: int) -> str:
    return sanitize.sanitize_text(text[:length])
