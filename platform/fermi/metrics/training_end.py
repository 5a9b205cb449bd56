"""When a training ends: as a bar or a line of the script says, else at the pace of its last steps. Pure."""

from fermi.metrics.bars import BarFollower
from fermi.metrics.pace import Pace

MAX_AGE_SECONDS = 15.0
"""Seconds, beside the time of two steps, for which what a bar or a line said counts."""
MIN_DISTANCE, DISTANCE_SHARE = 10, 0.05
"""A bar counts if it is at most so many steps, or this share of all steps, away from the progress."""


class TrainingEnd:
    """Estimates the end of one attempt's training. Times are unix seconds."""

    def __init__(self) -> None:
        self.bars = BarFollower()
        self._pace = Pace()
        self._line: tuple[float, float] | None = None  # when a line came, and the end that it says

    def add_line(self, seconds_left: float, time: float) -> None:
        """Keep the time left that a line said at this time."""
        self._line = time, time + seconds_left

    def get_position(self, total: int) -> int:
        """Return the position of the bar that counts to `total`; 0 if there is none."""
        bar = self.bars.bar
        return bar.position if bar and bar.total == total else 0

    def estimate(self, time: float, step: int, total: int) -> float | None:
        """Return when it ends, being at `step` of `total` (0: not known) at this time; None while nothing says it."""
        self._pace.add(time, step)
        bar = self.bars.bar
        if bar and bar.seconds_left is not None and bar.total == total and 0 < bar.position < total:
            of_step = bar.seconds_left / (total - bar.position)
            near = abs(bar.position - step) <= max(MIN_DISTANCE, DISTANCE_SHARE * total)
            if near and time - self.bars.time <= MAX_AGE_SECONDS + 2 * of_step:
                return self.bars.time + bar.seconds_left
        if self._line and time - self._line[0] <= MAX_AGE_SECONDS:
            return self._line[1]
        left = self._pace.estimate_seconds_left(time, step, total) if total else None
        return None if left is None else time + left
