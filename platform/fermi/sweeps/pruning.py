"""Which trials are ended early, from what they had reported when they came to certain steps.

A **mark** is a trial's objective as it was at such a step. ASHA (Li et al., "A System for Massively Parallel
Hyperparameter Tuning", MLSys 2020) has its marks at rungs: a trial that is not among the best 1/reduction of those that
reached a rung is paused there; it is promoted as soon as it is, because later trials were worse. Nothing that was
trained is trained again: a paused task continues from its checkpoint. The median rule (Golovin et al., "Google Vizier",
KDD 2017) stops a trial that is worse than the median of the others at the same step.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from fermi.sweeps.spec import MAX_RUNGS, ObjectiveRequest, PruningRequest

MAX_MARKS = 1_000
"""Marks of one trial; a trial of the median rule that makes more steps is not judged any more."""


@dataclass(frozen=True, slots=True)
class CurveState:
    """How far a trial's curve has been read. `low`, `high` and `last`: of the values so far; None: there was none."""

    step: int = -1
    low: float | None = None
    high: float | None = None
    last: float | None = None

    def get_value(self, objective: ObjectiveRequest) -> float | None:
        """Return the objective so far."""
        return {"last": self.last, "min": self.low, "max": self.high}[objective.statistic]

    def add_point(self, step: int, value: float) -> "CurveState":
        """Return the state with one more point. The same step may come again, after a restart."""
        low = value if self.low is None else min(self.low, value)
        high = value if self.high is None else max(self.high, value)
        return CurveState(max(self.step, step), low, high, value)


@dataclass(frozen=True, slots=True)
class Pruned:
    """Why a trial does not go on: a code with parameters."""

    code: str
    params: Mapping[str, Any] = field(default_factory=dict)


def list_rungs(pruning: PruningRequest, step: int) -> list[int]:
    """Return the steps, up to `step`, at which trials are compared."""
    if pruning.method == "asha":
        rungs: list[int] = []
        rung, end = pruning.min_steps, pruning.max_steps or step + 1
        while rung <= step and rung < end and len(rungs) < MAX_RUNGS:
            rungs.append(rung)
            rung *= pruning.reduction
        return rungs
    if pruning.method == "median":
        interval = pruning.interval or pruning.min_steps
        return list(range(pruning.min_steps, step + 1, interval)[:MAX_MARKS])
    return []


def add_points(
    pruning: PruningRequest,
    objective: ObjectiveRequest,
    curve: CurveState,
    marks: Mapping[int, float],
    points: Iterable[tuple[int, float]],
) -> tuple[CurveState, dict[int, float]]:
    """Return the state of the curve and the marks after more points, as (step, value) in the order in which they were
    reported. A mark is made by the first point at its step or beyond."""
    found = dict(marks)
    for step, value in points:
        before = curve.step
        curve = curve.add_point(step, value)
        if step > before:
            value_so_far = curve.get_value(objective)
            for rung in _list_new_rungs(pruning, before, step):
                if rung not in found and value_so_far is not None and len(found) < MAX_MARKS:
                    found[rung] = value_so_far
    return curve, found


def _list_new_rungs(pruning: PruningRequest, before: int, step: int) -> list[int]:
    if pruning.method == "median":
        interval, low = pruning.interval or pruning.min_steps, pruning.min_steps
        first = low if before < low else low + ((before - low) // interval + 1) * interval
        return list(range(first, step + 1, interval)[:MAX_MARKS])
    return [rung for rung in list_rungs(pruning, step) if rung > before]


def is_promotable(pruning: PruningRequest, objective: ObjectiveRequest, value: float, others: Sequence[float]) -> bool:
    """Return True if a trial goes on from a rung: `value` is among the best 1/reduction of itself and the `others` that
    reached it."""
    better = sum(objective.is_better(other, value) for other in others)
    return better < (len(others) + 1) // pruning.reduction


def judge_rung(
    pruning: PruningRequest, objective: ObjectiveRequest, rung: int, value: float, others: Sequence[float]
) -> Pruned | None:
    """Return why a trial of ASHA pauses at a rung; None where it goes on."""
    if is_promotable(pruning, objective, value, others):
        return None
    return Pruned("TRIAL_BELOW_RUNG", _rank_value(pruning, objective, rung, value, others))


def explain_end(
    pruning: PruningRequest, objective: ObjectiveRequest, rung: int, value: float, others: Sequence[float]
) -> Pruned:
    """Return why a trial that is paused at a rung does not go on any more, by all that reached the rung."""
    return Pruned("TRIAL_NOT_PROMOTED", _rank_value(pruning, objective, rung, value, others))


def _rank_value(
    pruning: PruningRequest, objective: ObjectiveRequest, rung: int, value: float, others: Sequence[float]
) -> dict[str, Any]:
    better = sum(objective.is_better(other, value) for other in others)
    count = len(others) + 1
    return {
        "step": rung,
        "value": round_value(value),
        "place": better + 1,
        "count": count,
        "kept": count // pruning.reduction,
    }


def judge_median(
    pruning: PruningRequest, objective: ObjectiveRequest, step: int, value: float, others: Sequence[float]
) -> Pruned | None:
    """Return why a trial is stopped at a step; None where it goes on."""
    if len(others) < pruning.start_trials:
        return None
    middle = median(others)
    if not objective.is_better(middle, value):
        return None
    params = {"step": step, "value": round_value(value), "median": round_value(middle), "count": len(others)}
    return Pruned("TRIAL_BELOW_MEDIAN", params)


def round_value(value: float) -> float:
    """Return an objective with the six digits that a text shows of it."""
    return float(f"{value:.6g}")
