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
from fermi.diagnosis.actions import ActionCode, build_action

NOT_FINITE, JUMPED, STUCK = "LOSS_NOT_FINITE", "LOSS_JUMPED", "LOSS_STUCK"
CODES = frozenset({NOT_FINITE, JUMPED})
"""Codes of a loss that is no longer valid."""
ROLLBACK_ACTION = build_action(ActionCode.CHANGE_FIELD, field="onBadLoss", to="rollback")
"""The action that lets a task resume from the newest checkpoint before such a loss."""

LOSS_NAMES = frozenset(
    {"loss", "train_loss", "training_loss", "loss_train", "lm_loss", "total_loss", "train_loss_step", "train_lm_loss"}
)
"""Metrics that count as the training loss, in lower case and with `_` between words."""

CERTAIN_POINTS = 3
WINDOW_POINTS, SUSTAINED_POINTS, IGNORED_LOW_POINTS = 50, 10, 2
MIN_POINTS = 40
START_POINTS = 10
MIN_NOISE_FACTOR, MIN_LOST_SHARE, MIN_GAINED_SHARE, MIN_RANGE_FACTOR = 8.0, 0.5, 0.3, 10.0
LONG_RUN_POINTS, MIN_LEVEL_FACTOR = 200, 5.0
SAME_POINTS, SAME_POINTS_FEW_DIGITS, SAME_POINTS_LATER = 100, 300, 200
"""Points that are exactly the same: from the first on, with `MIN_DIGITS` digits and with fewer; later on, with
`MANY_DIGITS`."""
MIN_DIGITS, MANY_DIGITS = 4, 5
LEVEL_POINTS, CHANCE_ERRORS, MAX_LEVEL_SPREAD = 600, 3.0, 0.05
MAX_SERIES, MAX_REPORTED, MAX_LINES = 3, 5, 6


@dataclass(frozen=True, slots=True)
class Resolved:
    """A finding about the metric `key` that holds no more."""

    code: str
    key: str


def is_loss(name: str) -> bool:
    """Return whether a metric is the training loss."""
    return re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_") in LOSS_NAMES


def extract_starts(state: Mapping[str, Any]) -> dict[str, Any]:
    """Return the state that the next attempt needs: the loss with which training began."""
    return {name: {"start": one["start"]} for name, one in state.items() if one.get("start") is not None}


def check_point(
    state: MutableMapping[str, Any], step: int, values: Mapping[str, float | None]
) -> Iterator[Finding | Resolved]:
    """Yield what a point shows. `state` is updated; a value that was not finite is None."""
    for name in values:
        if is_loss(name) and (name in state or len(state) < MAX_SERIES):
            one, value = state.setdefault(name, {}), values[name]
            yield from _check_missing(name, one, step) if value is None else _check_finite(name, one, step, value)


def _check_missing(name: str, series: dict[str, Any], step: int) -> Iterator[Finding]:
    bad = series.setdefault("bad", {"step": step, "good": (series.get("steps") or [None])[-1], "points": 0})
    bad["points"] += 1
    bad["well"] = 0
    if bad["points"] > CERTAIN_POINTS or series.get("told", 0) >= MAX_REPORTED:
        return
    certain = bad["points"] == CERTAIN_POINTS
    if certain or not series.get("doubted"):
        series["doubted"] = True
        series["told"] = series.get("told", 0) + certain
        params = {"metric": name, "step": bad["step"], "good": bad["good"], "count": bad["points"]}
        lines = [*_format_lines(name, series, MAX_LINES), f"step {step}: {name} is not finite"]
        yield _build_finding(NOT_FINITE, Level.FAIL if certain else Level.WARN, name, params, lines)


def _check_finite(name: str, series: dict[str, Any], step: int, value: float) -> Iterator[Finding | Resolved]:
    if bad := series.get("bad"):
        bad["well"] += 1
        if bad["points"] < CERTAIN_POINTS or bad["well"] >= CERTAIN_POINTS:
            del series["bad"]
            yield Resolved(NOT_FINITE, name)
    _record_value(series, step, value)
    yield from _check_stuck(name, series, step)
    if jump := series.get("jump"):
        jump["well"] = jump["well"] + 1 if value < (jump["before"] + jump["level"]) / 2 else 0
        if jump["well"] >= SUSTAINED_POINTS:
            del series["jump"]
            yield Resolved(JUMPED, name)
    elif series["count"] >= MIN_POINTS and series.get("told", 0) < MAX_REPORTED and (found := _find_jump(series)):
        before, level = found
        limit = (before + level) / 2
        at = len(series["values"]) - SUSTAINED_POINTS
        while series["values"][at] < limit:
            at += 1
        steps = series["steps"][at - len(series["values"]) - 1 :]
        series["jump"] = {"before": before, "level": level, "well": 0}
        series["told"] = series.get("told", 0) + 1
        params = {
            "metric": name,
            "step": steps[1],
            "good": steps[0],
            "before": _round_value(before),
            "level": _round_value(level),
        }
        lines = _format_lines(name, series, SUSTAINED_POINTS + MAX_LINES)
        yield _build_finding(JUMPED, Level.FAIL, name, params, lines)


def _record_value(series: dict[str, Any], step: int, value: float) -> None:
    values, steps = series.setdefault("values", []), series.setdefault("steps", [])
    values.append(float(f"{value:.6g}"))
    steps.append(step)
    del values[: -WINDOW_POINTS - SUSTAINED_POINTS], steps[: -SUSTAINED_POINTS - MAX_LINES - 1]
    series["count"] = series.get("count", 0) + 1
    if series["count"] == START_POINTS and series.get("start") is None:
        series["start"] = median(values)
    if len(values) > SUSTAINED_POINTS:
        past = values[-SUSTAINED_POINTS - 1]
        low, high = series.get("range", (past, past))
        series["range"] = [min(low, past), max(high, past)]


def _check_stuck(name: str, series: dict[str, Any], step: int) -> Iterator[Finding | Resolved]:
    """Yield whether the loss never moves, and update the series."""
    value, same = series["values"][-1], series.get("same")
    series["same"] = same = [value, same[1], same[2] + 1] if same and same[0] == value else [value, step, 1]
    exact, level = _is_same(series), _is_level(series)
    if told := series.get("stuck"):
        if same[2] == 1 if told == "exact" else series.get("moved"):
            del series["stuck"]
            yield Resolved(STUCK, name)
    elif (exact or level) and series.get("told", 0) < MAX_REPORTED:
        series["stuck"], series["told"] = "exact" if exact else "level", series.get("told", 0) + 1
        params: dict[str, Any] = {"metric": name, "step": step}
        if exact:
            params |= {"level": _round_value(value), "start": same[1], "count": same[2], "exact": True}
        else:
            mean, spread = _compute_mean(series["values"])
            params |= {"level": _round_value(mean), "noise": float(f"{spread:.2g}"), "start":
                       _round_value(series["base"][0]), "count": series["count"]}  # fmt: skip
        yield _build_finding(STUCK, Level.WARN, name, params, _format_lines(name, series, MAX_LINES))


def _is_same(series: Mapping[str, Any]) -> bool:
    value, _, count = series["same"]
    if count < min(SAME_POINTS, SAME_POINTS_FEW_DIGITS, SAME_POINTS_LATER):  # most points end here
        return False
    digits = len(f"{value:.6g}".partition("e")[0].replace(".", "").lstrip("-0"))
    from_start = count == series["count"] and series.get("start") in (None, value)
    return (from_start and count >= (SAME_POINTS if digits >= MIN_DIGITS else SAME_POINTS_FEW_DIGITS)) or (
        digits >= MANY_DIGITS and count >= SAME_POINTS_LATER
    )


def _is_level(series: dict[str, Any]) -> bool:
    """Return whether the loss stays level. Checked every so many points; a series that has moved once is never level
    again."""
    points = WINDOW_POINTS + SUSTAINED_POINTS
    if series.get("moved") or series["count"] % (points // 3) or series["count"] < points:
        return False
    mean, spread = _compute_mean(series["values"])
    base = series.setdefault("base", [mean, spread])
    error = max(spread, base[1]) * math.sqrt(2 / points)
    if abs(mean - base[0]) > CHANCE_ERRORS * error or abs(base[0] - series["start"]) > CHANCE_ERRORS * base[1]:
        series["moved"] = True
        return False
    return bool(series["count"] >= LEVEL_POINTS and 0 < spread <= MAX_LEVEL_SPREAD * mean)


def _compute_mean(values: Sequence[float]) -> tuple[float, float]:
    """Return the mean and the standard deviation."""
    mean = fmean(values)
    return float(f"{mean:.6g}"), float(f"{pstdev(values, mean):.6g}")


def _find_jump(series: Mapping[str, Any]) -> tuple[float, float] | None:
    """Return the level before and the level now, or None where the loss has not jumped."""
    past, now = series["values"][:-SUSTAINED_POINTS], sorted(series["values"][-SUSTAINED_POINTS:])
    level = now[IGNORED_LOW_POINTS]
    if level <= series["values"][-SUSTAINED_POINTS - 1] and level <= past[0]:  # most points end here
        return None
    before = median(past)
    height = level - before
    noise = median(abs(after - value) for value, after in pairwise(past))  # that of a run which falls steeply is small
    if height <= MIN_NOISE_FACTOR * noise:
        return None
    start, (low, high) = series["start"], series["range"]
    gained = start - before
    lost = low > 0 and gained >= MIN_GAINED_SHARE * start and height >= MIN_LOST_SHARE * gained
    long = series["count"] >= LONG_RUN_POINTS or (before > 0 and level >= MIN_LEVEL_FACTOR * before)
    farther = long and high > low and height >= MIN_RANGE_FACTOR * (high - low)
    return (before, level) if lost or farther else None


def _build_finding(code: str, level: Level, name: str, params: dict[str, Any], lines: Sequence[str]) -> Finding:
    evidence = Evidence("LOSS_POINTS", {"metric": name}, lines)
    actions: Sequence[Action] = ()
    if code == STUCK:
        actions = [build_action(ActionCode.EDIT_SCRIPT), build_action(ActionCode.STOP)]
    elif level is Level.FAIL:
        actions = [build_action(ActionCode.STOP), ROLLBACK_ACTION]
    return Finding(code, level, params, evidence=[evidence], actions=actions, key=name[:100])


def _format_lines(name: str, series: Mapping[str, Any], max_lines: int) -> list[str]:
    steps = series.get("steps", [])[-max_lines:]
    values = series.get("values", [])[-len(steps) :] if steps else []
    return [f"step {step}: {name} {value:.4g}" for step, value in zip(steps, values, strict=True)]


def _round_value(value: float) -> float:
    return float(f"{value:.4g}")
