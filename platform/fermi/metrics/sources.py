"""One series from several sources: a script that prints its loss often logs the same loss to a tracker. Pure; the state
is small JSON.

Names of two sources are compared where they mean the same (`canonicalize`). Values that agree at MIN_MATCHES steps, or
at one step in EXACT_DIGITS digits, or in ROUGH_DIGITS digits for MIN_MATCHES names at once, and differ at none, make
the two one series: that of the source with the lower priority is hidden. One difference makes them distinct for good,
unless a step has several values and others of these agree. A script that gives its step to one tracker alone, or counts
from 0 in one and from 1 in another, has the same values at other steps: EXACT_ORDER values in EXACT_DIGITS digits one
after the other, or ROUGH_ORDER in ROUGH_DIGITS, make two series one, too. Values agree if they are equal to the
precision with which the less precise one was printed, or to that of a single precision number, which event files hold.

    "names": {"loss": {"text:loss": [[10, 2.31], …], "wandb:train/loss": [[10, 2.3097], …]}}     the newest values
    "pairs": {"text:loss wandb:train/loss": 1}       matches so far; "same" or "distinct" once it is known
    "hidden": ["text:loss"]
    "best": ["wandb", true]                          the source of the task's progress, and whether it reports a loss

Of a name that only one source has, its first values are kept: another source that is read later, such as a file,
begins with them, too.
"""

import re
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from fermi.diagnosis import loss_anomalies
from fermi.metrics.points import Point, get_priority

MIN_MATCHES = 2
FIRST_VALUES = 4
"""Values that are kept of a name while only one source has it."""
EXACT_DIGITS, ROUGH_DIGITS = 5, 3
EXACT_ORDER, ROUGH_ORDER = 3, 4
"""Values that are the same in order. All of them differ."""
SINGLE_PRECISION = 2.0**-23
MAX_RECENT_VALUES = 16
MAX_COMPARED_SERIES = 8
"""Series that have one common name: losses of steps and of a run, from several sources."""
MAX_COMPARED_NAMES = 100
"""Names in the state; values of further ones are not compared."""
_WORD_ENDS = re.compile(r"[\s/.\-:]+|_+")


@dataclass(frozen=True, slots=True)
class HiddenSeries:
    """A series that another source reports as well: its values are removed."""

    source: str
    name: str


@lru_cache(maxsize=1024)
def canonicalize(name: str) -> str:
    """Return what is compared between sources: lower case, `_` between words, without a word for all curves (`charts/`
    of CleanRL, `summary/` of a whole run) as the first one, and without `train` or `training` as the first or last."""
    words = [word for word in _WORD_ENDS.sub("_", name.lower()).strip("_").split("_") if word]
    if len(words) > 1 and words[0] in ("summary", "charts", "metrics"):
        words = words[1:]
    while len(words) > 1 and words[0] in ("train", "training"):
        words = words[1:]
    if len(words) > 1 and words[-1] == "train":
        words = words[:-1]
    return "_".join(words)


def agree(one: float, other: float) -> bool:
    """Return whether the numbers are equal to the precision of the less precise one, or to single precision."""
    if abs(one - other) <= SINGLE_PRECISION * max(abs(one), abs(other)):
        return True
    unit = max(_find_last_digit(one), _find_last_digit(other))
    return abs(one - other) <= 0.5001 * unit


def count_digits(number: float) -> int:
    """Return the number of significant digits that are printed of the number."""
    return len(repr(float(number)).partition("e")[0].replace(".", "").strip("-0"))


def _find_last_digit(number: float) -> float:
    """Return the value of one unit in the last digit that is printed of the number."""
    digits, _, exponent = repr(float(number)).partition("e")
    decimals = len(digits.partition(".")[2].rstrip("0"))
    return float(10.0 ** ((int(exponent) if exponent else 0) - decimals))


def is_same_order(digits: list[int]) -> bool:
    """Return whether so many values in a row, with these numbers of digits, are no coincidence."""
    rules = ((EXACT_ORDER, EXACT_DIGITS), (ROUGH_ORDER, ROUGH_DIGITS))
    return any(len(digits) >= count and min(digits[:count]) >= least for count, least in rules)


def _list_digits_in_order(own: list[Any], other: list[Any]) -> list[int]:
    """Return of the newest own value and of those before it the number of digits in which they are the other's values
    in the same order, at whatever steps; up to the first that is not, or that is there twice."""
    newest = own[-1][1]
    places = [place for place, (_, told) in enumerate(other) if _may_agree(newest, told) and agree(newest, told)]
    found: list[int] = []
    seen = set[float]()
    if not places:
        return found
    for (_, mine), (_, told) in zip(reversed(own), reversed(other[: places[-1] + 1]), strict=False):
        if len(found) >= ROUGH_ORDER or mine in seen or not (_may_agree(mine, told) and agree(mine, told)):
            break
        seen.add(mine)
        found.append(min(count_digits(mine), count_digits(told)))
    return found


def _may_agree(one: float, other: float) -> bool:
    """Return False for most values that do not agree in ROUGH_DIGITS digits, in little time."""
    return abs(one - other) <= 0.01 * max(abs(one), abs(other))


class SourceMerger:
    """Decides which values of points are stored. `state` is updated."""

    def __init__(self, state: MutableMapping[str, Any]) -> None:
        self.state = state
        self.newly_hidden: list[HiddenSeries] = []
        self._source, self._known = "", set[tuple[str, ...]]()  # names of the only source so far

    def select_values(self, source: str, step: int, values: Mapping[str, float | None]) -> Mapping[str, float | None]:
        """Return the values that no better source reports. What is hidden from now on is in `newly_hidden`."""
        names = self.state.setdefault("names", {})
        if source != self._source:
            self._source, self._known = source, set()
        elif tuple(values) in self._known:
            return values
        done = True
        once: dict[str, list[tuple[str, str]]] = {}  # by source: pairs that agreed for the first time, and what to hide
        for name, value in values.items():
            key, common = f"{source}:{name}", canonicalize(name)
            known = names.get(common)
            if known is None and len(names) >= MAX_COMPARED_NAMES:
                continue
            if known is None:
                known = names[common] = {}
            if key not in known or len(known) > 1 or len(known[key]) < FIRST_VALUES:
                done = False
                for pair, hidden_key, other in self._compare(known, key, step, value):
                    once.setdefault(other, []).append((pair, hidden_key))
        for found in once.values():
            if len(found) >= MIN_MATCHES:
                for pair, hidden_key in found:
                    self.state["pairs"][pair] = "same"
                    self._hide(hidden_key)
        if done and len(self._known) < MAX_COMPARED_NAMES:
            self._known.add(tuple(values))
        hidden = self.state.get("hidden", ())
        if not hidden:
            return values
        return {name: value for name, value in values.items() if f"{source}:{name}" not in hidden}

    def _compare(
        self, known: dict[str, list[Any]], key: str, step: int, value: float | None
    ) -> list[tuple[str, str, str]]:
        """Return the pairs that agreed once, in ROUGH_DIGITS digits, what to hide of each, and the other's source."""
        once: list[tuple[str, str, str]] = []
        if key not in known and len(known) >= MAX_COMPARED_SERIES:
            return once
        recent = known.setdefault(key, [])
        if value is None:
            return once
        recent.append([step, value])
        del recent[:-MAX_RECENT_VALUES]
        source, pairs = key.partition(":")[0], self.state.setdefault("pairs", {})
        for other, values in known.items():
            pair = " ".join(sorted((key, other)))
            if other.partition(":")[0] == source or pairs.get(pair) in ("same", "distinct"):
                continue
            lower = min(key, other, key=lambda one: (get_priority(one.partition(":")[0]), one))
            there = [told for at, told in values if at == step]
            agreed = [told for told in there if agree(value, told)]
            ahead = [] if agreed else _list_digits_in_order(recent, values)
            if digits := ahead or ([] if agreed else _list_digits_in_order(values, recent)):
                if is_same_order(digits):
                    pairs[pair] = "same"
                    self._hide(lower)
                if digits[0] >= EXACT_DIGITS:
                    continue
            if not there:
                continue
            if not agreed and any(agree(own, told) for at, own in recent if at == step for told in there):
                continue  # a step has several values: of lines for people only the first counts
            pairs[pair] = pairs.get(pair, 0) + 1 if agreed else "distinct"
            if not agreed:
                continue
            common_digits = min(count_digits(value), count_digits(agreed[-1]))
            if common_digits >= EXACT_DIGITS or pairs[pair] >= MIN_MATCHES:
                pairs[pair] = "same"
                self._hide(lower)
            elif common_digits >= ROUGH_DIGITS:
                once.append((pair, lower, other.partition(":")[0]))
        return once

    def _hide(self, key: str) -> None:
        hidden = self.state.setdefault("hidden", [])
        if key not in hidden:
            hidden.append(key)
            source, _, name = key.partition(":")
            self.newly_hidden.append(HiddenSeries(source, name))

    def is_best(self, point: Point) -> bool:
        """Return whether the point is of the source that progress is read from: of those that report a loss, or of all
        while none does, the one with the highest priority."""
        source, had_loss = self.state.get("best", ("", False))
        if source == point.source and had_loss:
            return True
        has_loss = any(map(loss_anomalies.is_loss, point.values))
        if source == point.source:
            if has_loss:
                self.state["best"] = [source, True]
            return True
        if not source or (has_loss, get_priority(point.source)) > (had_loss, get_priority(source)):
            self.state["best"] = [point.source, has_loss]
            return True
        return False


def find_loss(values: Mapping[str, float | None]) -> str | None:
    """Return the name of the training loss among the values: `loss` if it is there."""
    return "loss" if "loss" in values else next(filter(loss_anomalies.is_loss, values), None)
