"""Numbers of ranks and nodes as text. Standard library only, Python 3.9 or later."""

from __future__ import annotations

from collections.abc import Iterable


def format_ranges(numbers: Iterable[int], separator: str = ",") -> str:
    """Return numbers in ascending order, those that follow each other as a range: `0-3,8`."""
    found: list[list[int]] = []
    for number in sorted(numbers):
        if found and number == found[-1][1] + 1:
            found[-1][1] = number
        else:
            found.append([number, number])
    return separator.join(f"{first}-{last}" if last > first else f"{first}" for first, last in found)
