"""Detects a loss that is wrong, point by point as rank 0 prints them. Pure; the state is small JSON.

LOSS_NOT_FINITE   Not a number, or infinite. The first such point is a doubt: a scaler of mixed precision skips a step
                  whose numbers overflowed. A finite point withdraws the doubt, and it is not reported again.
                  `CERTAIN_POINTS` points in a row are certain.
LOSS_JUMPED       Of `SUSTAINED_POINTS` points in a row all but two are far above the window before them:
                  `MIN_NOISE_FACTOR` times its own noise, and training has lost `MIN_LOST_SHARE` of all that it had
                  gained since it began, or is farther off by ten times all that it ever varied; while the run is short,
                  by
                  `MIN_LEVEL_FACTOR` of the level, too. A learning rate that begins a new cycle, harder data, or a loss
                  that swings around zero does not reach that. A slow rise is no jump.
LOSS_STUCK        It never moves; a warning, because a loss may stay level rightly. Either it is exactly the same value:
                  from its first point on, or later where `MANY_DIGITS` digits are printed. Or the mean of its newest
                  points never left that of its first ones by more than chance does (`CHANCE_ERRORS` standard errors) in
                  `LEVEL_POINTS` points, whose spread is small beside it (`MAX_LEVEL_SPREAD`): a policy's or a critic's
                  loss is not.

A run is judged from `MIN_POINTS` points on, and after a resume anew: only the loss with which training began is passed
on.
"""

import math
import re
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean, median, pstdev
from typing import Any

from fermi.diagnosis import Action, Evidence, Finding, Level
from fermi.diagnosis.actions import Do, take

NOT_FINITE, JUMPED, STUCK = "LOSS_NOT_FINITE", "LOSS_JUMPED", "LOSS_STUCK"
CODES = frozenset({NOT_FINITE, JUMPED})
"""Codes of a loss that is no longer valid."""
ROLL_BACK = take(Do.CHANGE_FIELD, field="onBadLoss", to="rollback")
"""The action that lets a task resume from the newest checkpoint before such a loss."""

NAMES = frozenset(
    {"loss", "train_loss", "training_loss", "loss_train", "lm_loss", "total_loss", "train_loss_step", "train_lm_loss"}
)
"""Metrics that count as the training loss, in lower case and with `_` between words."""

CERTAIN = 3
WINDOW, SUSTAINED, LOWEST = 50, 10, 2
SHORTEST = 40
BEGINNING = 10
SPREADS, LOST, WORTH, FARTHER = 8.0, 0.5, 0.3, 10.0
FARTHER_FROM, MANIFOLD = 200, 5.0
SAME_DIGITS, SAME_SHORT, SAME_LATER = 100, 300, 200
"""Points that are exactly the same: from the first on, with `MIN_DIGITS` digits and with fewer; later on, with
`MANY_DIGITS`."""
DIGITS, MANY_DIGITS = 4, 5
LEVEL, BY_CHANCE, EVEN = 600, 3.0, 0.05
MOST_SERIES, MOST_TOLD, SHOWN = 3, 5, 6


@dataclass(frozen=True, slots=True)
class Over:
    """A finding about the metric `key` that holds no more."""

    code: str
    key: str


def is_loss(name: str) -> bool:
    """Return whether a metric is the training loss."""
    return re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_") in NAMES


def beginnings(state: Mapping[str, Any]) -> dict[str, Any]:
    """Return the state that the next attempt needs: the loss with which training began."""
    return {name: {"start": one["start"]} for name, one in state.items() if one.get("start") is not None}


def read(state: MutableMapping[str, Any], step: int, values: Mapping[str, float | None]) -> Iterator[Finding | Over]:
    """Yield what a point shows. `state` is updated; a value that was not finite is None."""
    for name in values:
        if is_loss(name) and (name in state or len(state) < MOST_SERIES):
            one, value = state.setdefault(name, {}), values[name]
            yield from _missing(name, one, step) if value is None else _finite(name, one, step, value)


def _missing(name: str, one: dict[str, Any], step: int) -> Iterator[Finding]:
    bad = one.setdefault("bad", {"step": step, "good": (one.get("steps") or [None])[-1], "points": 0})
    bad["points"] += 1
    bad["well"] = 0
    if bad["points"] > CERTAIN or one.get("told", 0) >= MOST_TOLD:
        return
    certain = bad["points"] == CERTAIN
    if certain or not one.get("doubted"):
        one["doubted"] = True
        one["told"] = one.get("told", 0) + certain
        params = {"metric": name, "step": bad["step"], "good": bad["good"], "count": bad["points"]}
        lines = [*_lines(name, one, SHOWN), f"step {step}: {name} is not finite"]
        yield _finding(NOT_FINITE, Level.FAIL if certain else Level.WARN, name, params, lines)


def _finite(name: str, one: dict[str, Any], step: int, value: float) -> Iterator[Finding | Over]:
    if bad := one.get("bad"):
        bad["well"] += 1
        if bad["points"] < CERTAIN or bad["well"] >= CERTAIN:
            del one["bad"]
            yield Over(NOT_FINITE, name)
    _remember(one, step, value)
    yield from _stuck(name, one, step)
    if jump := one.get("jump"):
        jump["well"] = jump["well"] + 1 if value < (jump["before"] + jump["level"]) / 2 else 0
        if jump["well"] >= SUSTAINED:
            del one["jump"]
            yield Over(JUMPED, name)
    elif one["count"] >= SHORTEST and one.get("told", 0) < MOST_TOLD and (found := _jump(one)):
        before, level = found
        limit = (before + level) / 2
        at = len(one["values"]) - SUSTAINED
        while one["values"][at] < limit:
            at += 1
        steps = one["steps"][at - len(one["values"]) - 1 :]
        one["jump"] = {"before": before, "level": level, "well": 0}
        one["told"] = one.get("told", 0) + 1
        params = {"metric": name, "step": steps[1], "good": steps[0], "before": _short(before), "level": _short(level)}
        lines = _lines(name, one, SUSTAINED + SHOWN)
        yield _finding(JUMPED, Level.FAIL, name, params, lines)


def _remember(one: dict[str, Any], step: int, value: float) -> None:
    values, steps = one.setdefault("values", []), one.setdefault("steps", [])
    values.append(float(f"{value:.6g}"))
    steps.append(step)
    del values[: -WINDOW - SUSTAINED], steps[: -SUSTAINED - SHOWN - 1]
    one["count"] = one.get("count", 0) + 1
    if one["count"] == BEGINNING and one.get("start") is None:
        one["start"] = median(values)
    if len(values) > SUSTAINED:
        past = values[-SUSTAINED - 1]
        low, high = one.get("range", (past, past))
        one["range"] = [min(low, past), max(high, past)]


def _stuck(name: str, one: dict[str, Any], step: int) -> Iterator[Finding | Over]:
    """Yield whether the loss never moves, and update the series."""
    value, same = one["values"][-1], one.get("same")
    one["same"] = same = [value, same[1], same[2] + 1] if same and same[0] == value else [value, step, 1]
    exact, level = _is_same(one), _is_level(one)
    if told := one.get("stuck"):
        if same[2] == 1 if told == "exact" else one.get("moved"):
            del one["stuck"]
            yield Over(STUCK, name)
    elif (exact or level) and one.get("told", 0) < MOST_TOLD:
        one["stuck"], one["told"] = "exact" if exact else "level", one.get("told", 0) + 1
        params: dict[str, Any] = {"metric": name, "step": step}
        if exact:
            params |= {"level": _short(value), "start": same[1], "count": same[2], "exact": True}
        else:
            mean, spread = _mean(one["values"])
            params |= {"level": _short(mean), "noise": float(f"{spread:.2g}"), "start": _short(one["base"][0]),
                       "count": one["count"]}  # fmt: skip
        yield _finding(STUCK, Level.WARN, name, params, _lines(name, one, SHOWN))


def _is_same(one: Mapping[str, Any]) -> bool:
    value, _, count = one["same"]
    if count < min(SAME_DIGITS, SAME_SHORT, SAME_LATER):  # most points end here
        return False
    digits = len(f"{value:.6g}".partition("e")[0].replace(".", "").lstrip("-0"))
    from_start = count == one["count"] and one.get("start") in (None, value)
    return (from_start and count >= (SAME_DIGITS if digits >= DIGITS else SAME_SHORT)) or (
        digits >= MANY_DIGITS and count >= SAME_LATER
    )


def _is_level(one: dict[str, Any]) -> bool:
    """Return whether the loss stays level. Checked every so many points; a series that has moved once is never level
    again."""
    points = WINDOW + SUSTAINED
    if one.get("moved") or one["count"] % (points // 3) or one["count"] < points:
        return False
    mean, spread = _mean(one["values"])
    base = one.setdefault("base", [mean, spread])
    error = max(spread, base[1]) * math.sqrt(2 / points)
    if abs(mean - base[0]) > BY_CHANCE * error or abs(base[0] - one["start"]) > BY_CHANCE * base[1]:
        one["moved"] = True
        return False
    return bool(one["count"] >= LEVEL and 0 < spread <= EVEN * mean)


def _mean(values: Sequence[float]) -> tuple[float, float]:
    """Return the mean and the standard deviation."""
    mean = fmean(values)
    return float(f"{mean:.6g}"), float(f"{pstdev(values, mean):.6g}")


def _jump(one: Mapping[str, Any]) -> tuple[float, float] | None:
    """Return the level before and the level now, or None where the loss has not jumped."""
    past, now = one["values"][:-SUSTAINED], sorted(one["values"][-SUSTAINED:])
    level = now[LOWEST]
    if level <= one["values"][-SUSTAINED - 1] and level <= past[0]:  # most points end here
        return None
    before = median(past)
    height = level - before
    noise = median(abs(after - value) for value, after in pairwise(past))  # that of a run which falls steeply is small
    if height <= SPREADS * noise:
        return None
    start, (low, high) = one["start"], one["range"]
    gained = start - before
    lost = low > 0 and gained >= WORTH * start and height >= LOST * gained
    long = one["count"] >= FARTHER_FROM or (before > 0 and level >= MANIFOLD * before)
    farther = long and high > low and height >= FARTHER * (high - low)
    return (before, level) if lost or farther else None


def _finding(code: str, level: Level, name: str, params: dict[str, Any], lines: Sequence[str]) -> Finding:
    evidence = Evidence("LOSS_POINTS", {"metric": name}, lines)
    actions: Sequence[Action] = ()
    if code == STUCK:
        actions = [take(Do.EDIT_SCRIPT), take(Do.STOP)]
    elif level is Level.FAIL:
        actions = [take(Do.STOP), ROLL_BACK]
    return Finding(code, level, params, evidence=[evidence], actions=actions, key=name[:100])


def _lines(name: str, one: Mapping[str, Any], most: int) -> list[str]:
    steps = one.get("steps", [])[-most:]
    values = one.get("values", [])[-len(steps) :] if steps else []
    return [f"step {step}: {name} {value:.4g}" for step, value in zip(steps, values, strict=True)]


def _short(value: float) -> float:
    return float(f"{value:.4g}")
