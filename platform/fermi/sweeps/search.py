"""Which parameters the next trial gets: from the trials that there are, and nothing else.

Optuna's samplers work on a study that is built anew each time from the stored trials, with a random generator that is
seeded by the sweep and the trial's number. So the same trials give the same parameters, in whichever process. CMA-ES is
`cmaes` itself, the library under Optuna's sampler: Optuna's keeps its state as a pickle among the trials, while here
the generations are told again in the order in which their trials ended.

* TPE: Bergstra et al., "Algorithms for Hyper-Parameter Optimization", NeurIPS 2011; multivariate and grouped, so that
  conditions are respected, with running trials counted as bad ones (`constant_liar`).
* CMA-ES: Hansen, "The CMA Evolution Strategy: A Tutorial", arXiv:1604.00772.
* Importance: Watanabe et al., "PED-ANOVA", IJCAI 2023.
"""

import hashlib
import math
import random
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Any

from fermi.sweeps.space import Parameter, Value, list_grid
from fermi.sweeps.spec import SweepSpec

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution
    from optuna.study import Study

COMPLETE, PRUNED, FAILED, OPEN = "complete", "pruned", "failed", "open"
STARTUP_TRIALS = 10
"""So many trials of TPE are chosen at random (Optuna's default)."""
MIN_IMPORTANCE_TRIALS = 5
"""Of so few completed trials as ASHA may leave, importance would be chance: two always blame some parameter."""
INITIAL_SIGMA = 1 / 6
"""Of CMA-ES, in ranges of length 1 (Optuna's default)."""


@dataclass(frozen=True, slots=True)
class TrialRecord:
    """A trial as the search sees it. `outcome`: complete, pruned, failed or open; `value`: the objective, as far as
    known; `step`: at which a pruned trial had it; `ended`: when, in unix seconds; `search`: what `Suggestion.search`
    was."""

    number: int
    parameters: Mapping[str, Value]
    outcome: str
    value: float | None = None
    step: int = 0
    ended: float = 0.0
    search: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Suggestion:
    """Parameters of a trial. `search`: what is stored with it; `by`: grid, random, tpe or cmaes."""

    parameters: dict[str, Value]
    search: dict[str, Any]


def suggest_parameters(spec: SweepSpec, history: Sequence[TrialRecord], number: int, sweep: str) -> Suggestion | None:
    """Return the parameters of trial `number`, which begins at 0; None where the grid has no further combination.
    `history`: the trials before it."""
    seed = make_seed(sweep, number)
    if spec.method == "grid":
        chosen = next(islice(list_grid(spec.space), number, None), None)
        return None if chosen is None else Suggestion(chosen, {"by": "grid"})
    if spec.method == "cmaes":
        return _suggest_by_cmaes(spec, history, seed, make_seed(sweep, 0))
    finished = sum(one.outcome in (COMPLETE, PRUNED) for one in history)
    if spec.method == "random" or finished < STARTUP_TRIALS:
        return Suggestion(_draw_parameters(spec.space, random.Random(seed), {}), {"by": "random"})
    return Suggestion(_suggest_by_tpe(spec, history, seed), {"by": "tpe"})


def make_seed(sweep: str, number: int) -> int:
    """Return the seed of a trial: 31 bits."""
    return int.from_bytes(hashlib.sha256(f"{sweep}/{number}".encode()).digest()[:4]) >> 1


def compute_importance(spec: SweepSpec, history: Sequence[TrialRecord]) -> dict[str, float]:
    """Return by parameter what share of the differences among the best trials is due to it, the largest first. Empty
    where that cannot be told: with fewer than MIN_IMPORTANCE_TRIALS completed trials, or where all have the same
    objective. Parameters with a condition, and those of one value, are left out."""
    complete = [one for one in history if one.outcome == COMPLETE and one.value is not None]
    names = [one.name for one in spec.space if not one.when and (one.is_range or len(one.values) > 1)]
    if len(complete) < MIN_IMPORTANCE_TRIALS or not names or len({one.value for one in complete}) < 2:
        return {}
    from optuna.importance import PedAnovaImportanceEvaluator, get_param_importances

    study = _build_study(spec, complete, names)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            found = get_param_importances(study, evaluator=PedAnovaImportanceEvaluator())
        except (ValueError, RuntimeError, ZeroDivisionError):  # too few differ
            return {}
    shares = {name: float(share) for name, share in found.items() if math.isfinite(share)}
    return dict(sorted(shares.items(), key=lambda item: (-item[1], item[0])))


def _draw_parameters(
    space: Sequence[Parameter], generator: random.Random, chosen: Mapping[str, Value]
) -> dict[str, Value]:
    """Return random values of all parameters that are not in `chosen`, which has those of some."""
    drawn: dict[str, Value] = {}
    for one in space:
        if one.name in chosen:
            drawn[one.name] = chosen[one.name]
        elif one.is_active(drawn):
            drawn[one.name] = _from_unit(one, generator.random()) if one.is_range else generator.choice(one.values)
    return drawn


def _from_unit(one: Parameter, place: float) -> Value:
    """Return the value of a range at `place`, from 0 to 1."""
    place = min(max(place, 0.0), 1.0)
    if one.kind == "float" and one.step is None:
        if one.log:
            number = math.exp(math.log(one.low) + place * (math.log(one.high) - math.log(one.low)))
        else:
            number = one.low + place * (one.high - one.low)
        return min(max(number, one.low), one.high)
    step = one.step or 1.0
    if one.log:  # whole numbers: each gets the part of the range that is rounded to it
        number = math.exp(math.log(one.low - 0.5) + place * (math.log(one.high + 0.5) - math.log(one.low - 0.5)))
        return int(min(max(round(number), one.low), one.high))
    count = math.floor((one.high - one.low) / step + 1e-9) + 1
    number = one.low + min(math.floor(place * count), count - 1) * step
    return int(number) if one.kind == "int" else min(number, one.high)


def _to_unit(one: Parameter, value: float) -> float:
    """Return the place of a value, which `_from_unit` returns to it."""
    if one.kind == "float" and one.step is None:
        if one.log:
            return (math.log(value) - math.log(one.low)) / (math.log(one.high) - math.log(one.low))
        return (value - one.low) / (one.high - one.low)
    step = one.step or 1.0
    if one.log:
        low, high = math.log(one.low - 0.5), math.log(one.high + 0.5)
        return (math.log(value) - low) / (high - low)
    count = math.floor((one.high - one.low) / step + 1e-9) + 1
    return (round((value - one.low) / step) + 0.5) / count


def _suggest_by_cmaes(spec: SweepSpec, history: Sequence[TrialRecord], seed: int, first_seed: int) -> Suggestion:
    """Return a member of the generation that is not complete yet. Parameters that CMA-ES cannot choose, because they
    are no ranges or have a condition, are drawn."""
    import numpy as np
    from cmaes import CMA  # type: ignore[import-untyped]

    ranges = [one for one in spec.space if one.is_range and not one.when]
    size = len(ranges)
    optimizer = CMA(mean=np.full(size, 0.5), sigma=INITIAL_SIGMA, bounds=np.array([[0.0, 1.0]] * size), seed=first_seed)
    sign = 1.0 if spec.objective.goal == "minimize" else -1.0
    ended = sorted(
        (one for one in history if one.value is not None and one.outcome in (COMPLETE, PRUNED)),
        key=lambda one: (one.ended, one.number),
    )
    generation = 0
    while True:
        members = [one for one in ended if one.search.get("generation") == generation][: optimizer.population_size]
        if len(members) < optimizer.population_size:
            break
        optimizer.tell(
            [
                (np.array([_to_unit(at, float(one.parameters[at.name])) for at in ranges]), sign * (one.value or 0.0))
                for one in members
            ]
        )
        generation += 1
    optimizer.reseed_rng(seed)
    places = optimizer.ask()
    chosen = {at.name: _from_unit(at, float(place)) for at, place in zip(ranges, places, strict=True)}
    drawn = _draw_parameters(spec.space, random.Random(seed), chosen)
    return Suggestion(drawn, {"by": "cmaes", "generation": generation})


def _suggest_by_tpe(spec: SweepSpec, history: Sequence[TrialRecord], seed: int) -> dict[str, Value]:
    from optuna.samplers import TPESampler

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Optuna calls some of these options experimental
        sampler = TPESampler(
            seed=seed, multivariate=True, group=True, constant_liar=True, n_startup_trials=STARTUP_TRIALS
        )
        study = _build_study(spec, history, None, sampler)
        trial = study.ask()
        chosen: dict[str, Value] = {}
        for one in spec.space:
            if not one.is_active(chosen):
                continue
            if one.kind == "fixed":
                chosen[one.name] = one.values[0]
            elif one.kind == "choice":
                chosen[one.name] = one.values[one.values.index(trial.suggest_categorical(one.name, one.values))]
            elif one.kind == "int":
                low, high, step = int(one.low), int(one.high), int(one.step or 1)
                chosen[one.name] = trial.suggest_int(one.name, low, high, step=step, log=one.log)
            else:
                chosen[one.name] = trial.suggest_float(one.name, one.low, one.high, step=one.step, log=one.log)
    return chosen


def _build_study(
    spec: SweepSpec, history: Sequence[TrialRecord], names: Sequence[str] | None = None, sampler: Any = None
) -> "Study":
    """Return a study in memory that has the trials. `names`: only these parameters."""
    import optuna

    optuna.logging.disable_default_handler()
    states = {
        COMPLETE: optuna.trial.TrialState.COMPLETE,
        PRUNED: optuna.trial.TrialState.PRUNED,
        FAILED: optuna.trial.TrialState.FAIL,
        OPEN: optuna.trial.TrialState.RUNNING,
    }
    study = optuna.create_study(direction=spec.objective.goal, sampler=sampler)
    distributions = _build_distributions(spec.space)
    for one in history:
        usable = {
            name: value
            for name, value in one.parameters.items()
            if name in distributions and (names is None or name in names)
        }
        outcome = one.outcome if one.value is not None or one.outcome in (FAILED, OPEN) else FAILED
        study.add_trial(
            optuna.trial.create_trial(
                state=states[outcome],
                value=one.value if outcome == COMPLETE else None,
                params=usable,
                distributions={name: distributions[name] for name in usable},
                intermediate_values={one.step: one.value} if outcome == PRUNED and one.value is not None else None,
            )
        )
    return study


def _build_distributions(space: Sequence[Parameter]) -> dict[str, "BaseDistribution"]:
    """Return Optuna's distribution of each parameter that has more than one value."""
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    found: dict[str, BaseDistribution] = {}
    for one in space:
        if one.kind == "choice":
            found[one.name] = CategoricalDistribution(one.values)
        elif one.kind == "int":
            found[one.name] = IntDistribution(int(one.low), int(one.high), one.log, int(one.step or 1))
        elif one.kind == "float":
            found[one.name] = FloatDistribution(one.low, one.high, one.log, one.step)
    return found
