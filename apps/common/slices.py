"""SQLite takes so many values in one statement."""

from collections.abc import Iterable, Iterator

MOST = 500


def slices(keys: Iterable[str]) -> Iterator[list[str]]:
    """All of the keys, in parts that one statement may name."""
    rest = list(keys)
    return (rest[at : at + MOST] for at in range(0, len(rest), MOST))
