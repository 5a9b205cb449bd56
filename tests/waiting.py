"""Waiting for a condition: as short as it takes, with a deadline that only a broken system reaches."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def until(condition: Callable[[], T], *, seconds: float = 60.0, what: str = "") -> T:
    """The first truthy value of `condition`. Raises AssertionError, with the last value, at the deadline."""
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {seconds} s: {what or condition}; last: {value!r}")
        time.sleep(0.01)
    return value
