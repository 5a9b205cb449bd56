"""When a sweep starts no further trial: its budget is used up, or its target is reached."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from fermi.sweeps.pruning import round_value
from fermi.sweeps.spec import SweepSpec


@dataclass(frozen=True, slots=True)
class SweepUse:
    """What the trials of a sweep used, and the best objective among them. `cost`: None without a price."""

    trials: int = 0
    gpu_hours: float = 0.0
    cost: float | None = None
    best: float | None = None


@dataclass(frozen=True, slots=True)
class Spent:
    """Which part of the budget is used up, as a code with parameters. `stops`: trials that run are stopped, too."""

    code: str
    params: Mapping[str, Any] = field(default_factory=dict)
    stops: bool = True


def find_spent(spec: SweepSpec, use: SweepUse, moment: float) -> Spent | None:
    """Return which part of the budget is used up, or that the target is reached; None while trials may start.
    `moment`: now, in unix seconds."""
    budget = spec.budget
    if spec.objective.is_reached(use.best):
        value = None if use.best is None else round_value(use.best)
        return Spent("SWEEP_TARGET_REACHED", {"value": value, "target": spec.objective.target})
    if spec.ends_at is not None and moment >= spec.ends_at:
        return Spent("SWEEP_TIME_OVER", {"until": spec.ends_at})
    if budget.gpu_hours is not None and use.gpu_hours >= budget.gpu_hours:
        return Spent("SWEEP_GPU_HOURS_SPENT", {"high": budget.gpu_hours, "found": round(use.gpu_hours, 2)})
    if budget.cost is not None and use.cost is not None and use.cost >= budget.cost:
        return Spent("SWEEP_COST_SPENT", {"high": budget.cost, "found": round(use.cost, 2)})
    if use.trials >= spec.max_trials:
        return Spent("SWEEP_TRIALS_DONE", {"count": use.trials}, stops=False)
    return None
