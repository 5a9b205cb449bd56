"""Waiting for a condition: as short as it takes, with a deadline that only a broken system reaches."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

SLOWER = 3
"""Machines differ, and other tests run beside: so many times slower than where a deadline was chosen."""


def until(condition: Callable[[], T], *, seconds: float = 60.0, what: str = "") -> T:
    """The first truthy value of `condition`. Raises AssertionError, with the last value, at the deadline. Asking takes
    a sixth of the time at most: it runs beside what is waited for, on the same cores."""
    seconds *= SLOWER
    deadline = time.monotonic() + seconds
    while True:
        began = time.monotonic()
        if value := condition():
            return value
        ended = time.monotonic()
        if ended > deadline:
            raise AssertionError(f"not within {seconds} s: {what or condition}; last: {value!r}")
        time.sleep(min(max(0.01, 5 * (ended - began)), 0.5))
