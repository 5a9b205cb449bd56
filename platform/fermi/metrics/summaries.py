"""What curves come to: of each name how many values it has, the last one, the lowest and the highest. Pure; the state
is small JSON, which a reader of a rank's log keeps from read to read.

    {"json::loss": [4000, 1.83, 4000, 1.79, 3700, 9.21, 1]}     by source, pattern and name as it was printed:
                    count, last and its step, lowest and its step, highest and its step

Sources and patterns are kept apart, so that a series that is hidden later, or a pattern whose names are changed, takes
nothing with it that belongs to another one.
"""

import math
from collections.abc import Collection, Iterable, Mapping, MutableMapping
from typing import Any, NamedTuple

from fermi.metrics.points import get_priority

MAX_SUMMARIES = 500
"""Names of one task, and series of one rank and attempt; further ones are left out."""
MAX_NAME_LENGTH = 200

State = MutableMapping[str, list[Any]]
PatternNames = Mapping[str, Mapping[str, str] | None]
"""By pattern the names that users gave to its fields, empty for one that is left out; None: it is switched off."""


class Summary(NamedTuple):
    """Summary of one curve. Each step is the one at which the value was reported first, and that of `last` the newest
    one."""

    count: int  # type: ignore[assignment]  # of the values, not of the tuple
    last: float
    last_step: int
    low: float
    low_step: int
    high: float
    high_step: int


def add_values(state: State, source: str, pattern: str, step: int, values: Mapping[str, float | None]) -> bool:
    """Add the finite values that a source reports at a step; return whether there were any."""
    changed = False
    for name, value in values.items():
        if value is None or not math.isfinite(value):
            continue
        key, number = f"{source}:{pattern}:{name}", float(value)
        known = state.get(key)
        if known is None:
            if len(state) >= MAX_SUMMARIES or len(name) > MAX_NAME_LENGTH:
                continue
            state[key] = [1, number, step, number, step, number, step]
        else:
            known[0] += 1
            known[1], known[2] = number, step
            if number < known[3]:
                known[3], known[4] = number, step
            if number > known[5]:
                known[5], known[6] = number, step
        changed = True
    return changed


def remove_series(state: State, source: str, name: str) -> None:
    """Remove the values of a source under a name, of all patterns."""
    for key in [key for key in state if key.startswith(f"{source}:") and key.split(":", 2)[2] == name]:
        del state[key]


def has_patterns(states: Iterable[Mapping[str, Any]]) -> bool:
    """Return whether any series of the states comes from lines of a pattern."""
    return any(key.split(":", 2)[1] for state in states for key in state)


def combine_attempts(
    states: Iterable[Mapping[str, list[Any]]], names: PatternNames, first: Collection[str] = ()
) -> dict[str, Summary]:
    """Return the summaries by shown name, at most MAX_SUMMARIES, those of the names `first` before others.

    `states`: of the attempts, the first one first. The last value is that of the newest attempt that has one; a step
    that a later attempt repeats counts in both. Of sources with the same name in one attempt the best one counts.
    """
    found: dict[str, Summary] = {}
    for state in states:
        for name, summary in _name_series(state, names).items():
            found[name] = _join(found[name], summary) if name in found else summary
    if len(found) <= MAX_SUMMARIES:
        return found
    ordered = sorted(found, key=lambda name: name not in first)
    return {name: found[name] for name in ordered[:MAX_SUMMARIES]}


def _name_series(state: Mapping[str, list[Any]], names: PatternNames) -> dict[str, Summary]:
    """Return the summaries of an attempt by shown name."""
    best: dict[str, tuple[str, Summary]] = {}
    for key, numbers in state.items():
        source, pattern, printed = key.split(":", 2)
        renamed = names.get(pattern, {}) if pattern else {}
        name = None if renamed is None else renamed.get(printed, printed)
        if not name:
            continue
        summary = Summary(*numbers)
        if name not in best or _rank_source(source) > _rank_source(best[name][0]):
            best[name] = source, summary
        elif source == best[name][0]:
            earlier, later = sorted((best[name][1], summary), key=lambda one: one.last_step)
            best[name] = source, _join(earlier, later)
    return {name: summary for name, (_, summary) in best.items()}


def _rank_source(source: str) -> tuple[int, str]:
    return get_priority(source), source


def _join(earlier: Summary, later: Summary) -> Summary:
    low = min(earlier, later, key=lambda one: one.low)
    high = max(earlier, later, key=lambda one: one.high)
    return Summary(
        earlier.count + later.count, later.last, later.last_step, low.low, low.low_step, high.high, high.high_step
    )
