"""How long a training still takes at the pace of its last steps. Pure."""

import math
from collections import deque

SPACING_SECONDS = 5.0
"""Seconds between two positions that are kept."""
MAX_POSITIONS = 36
"""At SPACING_SECONDS these are three minutes; where a step takes longer, more."""
MIN_SECONDS = 3.0
"""A shorter time says nothing of the pace."""


class Pace:
    """The newest positions of a training: at which time, in seconds, it had reached which step."""

    def __init__(self) -> None:
        self._positions: deque[tuple[float, int]] = deque(maxlen=MAX_POSITIONS)

    def add(self, time: float, step: int) -> None:
        """Add a position. One before the last begins anew: another attempt, or another counter."""
        last, reached = self._positions[-1] if self._positions else (-math.inf, -1)
        if step < reached or time < last:
            self._positions.clear()
            last = -math.inf
        if step != reached and time - last >= SPACING_SECONDS:
            self._positions.append((time, step))

    def estimate_seconds_left(self, time: float, step: int, total: int) -> float | None:
        """Return the seconds from `time`, when it is at `step`, to the step `total`; None while there is no pace."""
        if not self._positions:
            return None
        began, first = self._positions[0]
        if step <= first or time - began < MIN_SECONDS:
            return None
        return max(0, total - step) * (time - began) / (step - first)
