"""Which GPUs are in use, from what their machines say of the last minutes."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

BUSY = 5.0
"""Per cent: a GPU that is used less does nothing worth a GPU."""
IDLE_AFTER = timedelta(minutes=10)


class Use(NamedTuple):
    """How many of a machine's GPUs were in use within `IDLE_AFTER`, and how many for sure were not."""

    busy: int = 0
    idle: int = 0


UNKNOWN = Use()


def look(held: Mapping[str, datetime], moment: datetime) -> Mapping[str, Use]:
    """Of these environments, with since when a task has each. Who has one for less than `IDLE_AFTER` is not idle."""
    return {}


def hours(environments: Sequence[str], begins: datetime, ends: datetime) -> Mapping[str, tuple[float, float]]:
    """Of each: GPU-hours that were measured between the two, and how many of these the GPUs were in use."""
    return {}
