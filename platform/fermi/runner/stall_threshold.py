"""How long a rank may show no progress before it is examined: learnt from its own past, and bounded. Standard library
only, Python 3.9 or later. Uses neither a clock nor a process.

    silence   since its last sign of progress: a step, a line, a collective, a phase
    rest      since its last activity of any kind

Both are compared with three times the longest after which this rank ever went on, in the same phase. A silence alone
may be an evaluation that no hook sees: its rank computes, so it has hardly any rest in its past, and a rank that hangs
there later is detected by its rest as early as ever.
"""

from __future__ import annotations

PAST_FACTOR = 3.0
MAX_SECONDS = 1800.0
MIN_SECONDS, MIN_UNSEEN_SECONDS = 8.0, 45.0
"""The lowest thresholds: for work that is known to repeat, and for all else."""
MIN_REPEATS = 3
"""After so many steps (or lines of figures, if steps cannot be seen) a rank's work is known to repeat."""


class StallThreshold:
    """The thresholds of one rank. `fixed`: the task's own setting, in place of all that is learnt."""

    def __init__(self, began: float, fixed: float | None = None) -> None:
        self.fixed = fixed
        self.advanced_at = self.active_at = began
        self.kind, self.floor = "starting", MIN_UNSEEN_SECONDS
        self._longest: dict[tuple[str, str], float] = {}

    def record_sample(self, moment: float, phase: str, repeats: int, *, advanced: bool, active: bool) -> None:
        """Record a sample. `repeats`: steps or lines of figures so far. `active`: it has done something since the last
        sample."""
        if advanced or active:
            self._learn("rest", moment - self.active_at)
            self.active_at = moment
        if advanced:
            self._learn("silence", moment - self.advanced_at)
            self.advanced_at = moment
        self.kind = phase
        if phase in ("starting", "running"):  # of what shows no phases, figures show that it runs
            self.kind = "running" if repeats else "starting"
        self.floor = (
            MIN_SECONDS
            if phase == "ending" or (self.kind == "running" and repeats >= MIN_REPEATS)
            else MIN_UNSEEN_SECONDS
        )

    def silence(self, moment: float) -> float:
        """Return the seconds since its last sign of progress."""
        return moment - self.advanced_at

    def is_silent_too_long(self, moment: float) -> bool:
        """Return True if the silence exceeds the threshold."""
        return self.silence(moment) >= self.get_threshold("silence")

    def is_idle_too_long(self, moment: float) -> bool:
        """Return True if the rest exceeds the threshold."""
        return moment - self.active_at >= self.get_threshold("rest")

    def get_threshold(self, what: str) -> float:
        """Return the threshold in seconds for "silence" or "rest"."""
        if self.fixed:
            return self.fixed
        return min(MAX_SECONDS, max(self.floor, PAST_FACTOR * self._longest.get((self.kind, what), 0.0)))

    def _learn(self, what: str, seconds: float) -> None:
        key = self.kind, what
        self._longest[key] = max(seconds, self._longest.get(key, 0.0))
