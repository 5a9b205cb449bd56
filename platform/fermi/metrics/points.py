"""A point: numbers at a step, whoever reported them. Pure."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

JSON, TEXT, FILE = "json", "text", "file"
"""Sources of lines that are meant for the platform, of lines for people, and of files that a script writes. The other
sources are names of trackers whose calls were recorded."""
PRIORITIES = {FILE: 0, TEXT: 1, JSON: 2}
CALL_PRIORITY = 3
"""Of two sources with the same values the one with the higher priority is kept."""


@dataclass(frozen=True, slots=True)
class Point:
    """Numbers at a step. `step` None: the source has none. Values that were not finite are None. `is_plain_text`:
    parsed from a line for people, whose numbers may begin at 0: where optimizer steps are counted, these are used for
    progress. `pattern`: the key of the lines' pattern (`text_patterns`), with `total`, of how many steps the training
    is, and its `seconds_left`, where lines say that."""

    step: int | None
    values: Mapping[str, float | None]
    time: float | None
    source: str = JSON
    is_plain_text: bool = False
    pattern: str = ""
    total: int | None = None
    seconds_left: float | None = None


def get_priority(source: str) -> int:
    """Return how much a source is preferred to others; higher is better."""
    return PRIORITIES.get(source, CALL_PRIORITY)


def parse_integer(value: Any) -> int | None:
    """Return the value as a count (a step, a size); None if it is none, or too large for a database's integer."""
    found = parse_number(value)
    return int(found) if found is not None and 0 <= found < 2**63 else None


def parse_number(value: Any) -> float | None:
    """Return the value if it is a finite number, and an integer of at most 64 bits; else None."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        return None
    return value if math.isfinite(value) else None
