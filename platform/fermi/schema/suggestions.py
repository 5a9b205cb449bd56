"""Finds the nearest valid value to one that is refused; None where nothing is near."""

import difflib
import json
import math
from collections.abc import Iterable
from typing import Any

MAX_NAME_LENGTH = 100
"""Characters of the longest name for which a nearest one is looked for."""


def suggest_name(value: Any, names: Iterable[str]) -> str | None:
    """Return the name that is spelled most like the value, ignoring case, or None."""
    spelled = {word.lower(): word for word in names}
    matches = difflib.get_close_matches(str(value).lower(), spelled, n=1)
    return spelled[matches[0]] if matches else None


def suggest_field(path: str, fields: Iterable[str]) -> str | None:
    """Return the path of the field that a path such as `distributedConfig.maxRestart` was meant to be: the known one
    whose last name is spelled most alike, and of several the one in the same object. None where nothing is near."""
    within, _, last = path.rpartition(".")
    if len(last) > MAX_NAME_LENGTH:
        return None
    paths = list(fields)
    word = suggest_name(last, (path.rpartition(".")[2] for path in paths))
    meant = [path for path in paths if path.rpartition(".")[2] == word]
    return next((path for path in meant if path.rpartition(".")[0] == within), next(iter(meant), None))


def suggest_number(value_or_text: Any, low: float | None, high: float | None, *, integer: bool) -> float | None:
    """Return the number within the inclusive bounds that is nearest to the value. Text that reads as a number counts as
    one; None for anything else."""
    try:
        value = json.loads(value_or_text) if isinstance(value_or_text, str) else value_or_text
    except (ValueError, RecursionError):
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(_float(value)):
        return None
    if low is not None and value < low:
        value = math.ceil(low) if integer else low
    if high is not None and value > high:
        value = math.floor(high) if integer else high
    return round(value) if integer else value


def suggest_boolean(value: Any) -> bool | None:
    """Return the boolean that a word such as `yes` or `off` means, or None."""
    words = {"true": True, "yes": True, "on": True, "1": True, "false": False, "no": False, "off": False, "0": False}
    return words.get(str(value).lower())


def suggest_multiples(number: int, unit: int) -> tuple[int, ...]:
    """Return the multiples of `unit` on both sides of a number, without 0."""
    below = number // unit * unit
    return tuple(size for size in (below, below + unit) if size > 0)


def list_divisors(number: int) -> list[int]:
    return [size for size in range(1, number + 1) if number % size == 0]


def suggest_divisor(value: int, number: int) -> int:
    """Return the divisor nearest to the value; of two that are as near, the smaller one."""
    return min(list_divisors(number), key=lambda size: (abs(size - value), size))


def _float(value: float) -> float:
    try:
        return float(value)
    except OverflowError:  # an integer beyond what a float holds is still a number
        return 1e308 if value > 0 else -1e308
