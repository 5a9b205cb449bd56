"""SQLite takes so many values in one statement."""

from collections.abc import Iterable, Iterator
from typing import TypeVar

T = TypeVar("T")
MOST = 500


def slices(keys: Iterable[T]) -> Iterator[list[T]]:
    """All of the keys, in parts that one statement may name."""
    rest = list(keys)
    return (rest[at : at + MOST] for at in range(0, len(rest), MOST))
