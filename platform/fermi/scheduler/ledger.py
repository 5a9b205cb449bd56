"""Divides the time for which a task held its environments into what it was used for.

held ─▶ starting ─▶ redone ─▶ training ─▶ saving ─▶ idle ─▶ …       an attempt that was asked to end
                                       └▶ lost ──▶ lost ─▶ …        one that failed, and the back-off after it

starting   from an attempt's begin to its first step; where no step is known, until its ranks ran
redone     until it passes the highest step that an earlier attempt had reached; where no steps are known, as long as
           the attempt before had trained since its newest checkpoint
training   steps that no earlier attempt had made
saving     from the moment an attempt was asked to end until it had
hung       of an attempt, whatever else it would have been: while its ranks did not advance
lost       from the last sign of life of an attempt that failed until it had ended, and on until the next one began
idle       held without an attempt for any other reason
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from typing import Self

PART_NAMES = ("starting", "training", "saving", "lost", "redone", "idle", "hung")


TimeSpan = tuple[str, float, float]
"""(name of the part, begin, end), in unix seconds."""


@dataclass(frozen=True, slots=True)
class AttemptTimes:
    """The times of an attempt, in unix seconds; None: unknown, or not yet.

    stepped   when it made its first step
    passed    when it passed the highest step of the attempts before it; None with `steps_known`: never
    signed    its last sign of life: a step, a line
    ending    when its end became known, and the platform began to end it
    failed    whether it ended by a failure
    saved     when its newest checkpoint was saved
    hangs     since when, and until when, it did not advance; without an end: until it was ended
    """

    began: float
    running: float | None = None
    stepped: float | None = None
    passed: float | None = None
    steps_known: bool = False
    signed: float | None = None
    ending: float | None = None
    ended: float | None = None
    failed: bool = False
    saved: float | None = None
    hangs: Sequence[tuple[float, float | None]] = ()


@dataclass(frozen=True, slots=True)
class TimeParts:
    """Seconds by part; they add up to the time that is divided."""

    starting: float = 0.0
    training: float = 0.0
    saving: float = 0.0
    lost: float = 0.0
    redone: float = 0.0
    idle: float = 0.0
    hung: float = 0.0

    @property
    def total(self) -> float:
        return sum(asdict(self).values())

    def times(self, factor: float) -> Self:
        """Return the parts multiplied by a factor."""
        return replace(self, **{name: value * factor for name, value in asdict(self).items()})

    def plus(self, other: Self) -> Self:
        """Return the sum of both."""
        return replace(self, **{name: value + getattr(other, name) for name, value in asdict(self).items()})


def sum_parts(parts: Iterable[TimeParts]) -> TimeParts:
    """Return the sum of all parts."""
    found = TimeParts()
    for one in parts:
        found = found.plus(one)
    return found


def build_spans(since: float, until: float, runs: Iterable[AttemptTimes]) -> list[TimeSpan]:
    """Return what each span of the time from `since` to `until` was used for, in order and without gaps."""
    found: list[TimeSpan] = []
    at, after, owed = since, "idle", 0.0

    def reach(name: str, moment: float | None) -> None:
        nonlocal at
        end = min(until, at if moment is None else moment)
        if end > at:
            found.append((name, at, end))
            at = end

    for run in sorted(runs, key=lambda run: run.began):
        reach(after, run.began)
        over = run.ended if run.ended is not None else until
        first_of_run = len(found)
        trained_until = _find_training_end(run, over)
        first = run.stepped if run.stepped is not None else run.running
        reach("starting", min(over, first) if first is not None else over)
        redone_until = _find_redone_end(run, at, owed, trained_until)
        reach("redone", min(redone_until, trained_until))
        reach("training", trained_until)
        reach("lost" if run.failed else "saving" if run.ending is not None else "training", over)
        found[first_of_run:] = _mark_hangs(found[first_of_run:], run, over)
        after = "lost" if run.failed else "idle"
        owed = _compute_unsaved(run, first, trained_until)
    reach(after, until)
    return found


def _mark_hangs(parts: Iterable[TimeSpan], run: AttemptTimes, end: float) -> Iterator[TimeSpan]:
    """Yield the spans with `hung` in place of what each was while the attempt did not advance."""
    last = end if run.ending is None else min(run.ending, end)
    hangs = [(since, last if until is None else until) for since, until in run.hangs]
    for name, begins, ends in parts:
        edges = sorted({begins, ends, *(edge for hang in hangs for edge in hang if begins < edge < ends)})
        for since, until in pairwise(edges):
            hung = any(hang[0] <= since and until <= hang[1] for hang in hangs)
            yield "hung" if hung else name, since, until


def compute_breakdown(since: float, until: float, runs: Iterable[AttemptTimes]) -> TimeParts:
    """Return the seconds of each part of the time from `since` to `until`."""
    sums = dict.fromkeys(PART_NAMES, 0.0)
    for name, begins, ends in build_spans(since, until, runs):
        sums[name] += ends - begins
    return TimeParts(**sums)


def compute_goodput(parts: TimeParts) -> float | None:
    """Return the share of held time that moved training forward; None: nothing was held."""
    return parts.training / parts.total if parts.total > 0 else None


def compute_ettr(parts: TimeParts, waited: float) -> float | None:
    """Return the effective training time ratio: of the time from when training could have begun, waiting included, the
    share that moved training forward (Kokolis et al. 2024, arXiv:2410.21680, §2; MegaScale, arXiv:2402.15627, §6.3
    calls it the effective training time rate). `waited` is in the parts' unit. None: no time has passed."""
    whole = parts.total + waited
    return parts.training / whole if whole > 0 else None


def _find_training_end(run: AttemptTimes, end: float) -> float:
    if run.ending is None:
        return end
    last = run.signed if run.failed and run.signed is not None else run.ending
    return min(max(last, run.began), run.ending, end)


def _find_redone_end(run: AttemptTimes, first: float, owed: float, trained_until: float) -> float:
    if run.passed is not None:
        return run.passed
    return trained_until if run.steps_known else first + owed


def _compute_unsaved(run: AttemptTimes, first: float | None, trained_until: float) -> float:
    """Return the seconds that the next attempt has to do again, as far as checkpoints tell."""
    if first is None:
        return 0.0
    safe = max(first, run.saved) if run.saved is not None else first
    return max(trained_until - safe, 0.0)


def parts_to_dict(parts: TimeParts) -> Mapping[str, float]:
    """Return the parts by name."""
    return asdict(parts)
