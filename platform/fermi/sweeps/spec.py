"""What a user describes a sweep by: names, defaults and bounds. The API, its document and the command line read it from
here; `fermi.sweeps.space` and `find_problems` check what a field means beyond its own value."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct, structs

from fermi.jobs import json_shape
from fermi.jobs.spec import Problem
from fermi.planning.request import describe_field
from fermi.sweeps.space import MAX_NUMBER, Parameter, ParameterRequest, build_space, count_grid

MAX_TRIALS = 5_000
MAX_PARALLEL = 256
MAX_PARAMETERS = 100
MAX_STEPS = 2**53
"""The largest step that JSON's readers keep exactly."""
MAX_RUNGS = 64
DEFAULT_PARALLEL = 4
MIN_AMOUNT, MAX_AMOUNT = 1e-6, 1e12
_AMOUNT = Meta(ge=MIN_AMOUNT, le=MAX_AMOUNT)


class ObjectiveRequest(Struct, frozen=True, kw_only=True, rename="camel"):
    """What is made small or large. `value`: which value of the metric's curve counts; `best` is the lowest one where
    the goal is to minimize, else the highest one."""

    metric: Annotated[str, describe_field("the name of a metric that the trials report", max_length=200, trim=True)] = (
        ""
    )
    goal: Annotated[Literal["minimize", "maximize"], describe_field(choices=["minimize", "maximize"])] = "minimize"
    value: Annotated[
        Literal["best", "last", "min", "max"],
        describe_field("which value of the metric's curve counts", choices=["best", "last", "min", "max"]),
    ] = "best"
    target: (
        Annotated[float, describe_field("the sweep ends once a trial is as good", ge=-MAX_NUMBER, le=MAX_NUMBER)] | None
    ) = None

    @property
    def statistic(self) -> str:
        """Return `last`, `min` or `max`."""
        if self.value != "best":
            return self.value
        return "min" if self.goal == "minimize" else "max"

    def is_reached(self, value: float | None) -> bool:
        """Return True if a value is as good as the target."""
        return self.target is not None and value is not None and not self.is_better(self.target, value)

    def is_better(self, one: float, other: float) -> bool:
        return one < other if self.goal == "minimize" else one > other


class PruningRequest(Struct, frozen=True, kw_only=True, rename="camel"):
    """How trials are ended early. `asha`: at the steps minSteps, minSteps × reduction, minSteps × reduction² …
    only the best of 1/reduction go on, the others are paused; maxSteps is a whole training, by default the
    request's totalSteps. `median`: at minSteps, and each `interval` steps from there, a trial that is worse than
    the median of the others is stopped."""

    method: Annotated[Literal["none", "asha", "median"], describe_field(choices=["none", "asha", "median"])] = "none"
    min_steps: Annotated[int, Meta(ge=1, le=MAX_STEPS)] = 1
    max_steps: Annotated[int, describe_field("of asha: the steps of a whole training", ge=1, le=MAX_STEPS)] | None = (
        None
    )
    reduction: Annotated[int, describe_field("of asha", ge=2, le=100)] = 3
    interval: Annotated[int, describe_field("of median; minSteps by default", ge=1, le=MAX_STEPS)] | None = None
    start_trials: Annotated[
        int, describe_field("of median: so many trials have to have reached a step", ge=1, le=MAX_TRIALS)
    ] = 5


class BudgetRequest(Struct, frozen=True, kw_only=True, rename="camel"):
    """When no further trial starts. Trials that run when `trials` is reached go on; all else stops them."""

    trials: Annotated[int, describe_field("how many there are at most", ge=1, le=MAX_TRIALS)] | None = None
    gpu_hours: Annotated[float, _AMOUNT] | None = None
    cost: Annotated[float, describe_field("in the platform's currency", ge=MIN_AMOUNT, le=MAX_AMOUNT)] | None = None
    ends_at: Annotated[str, describe_field("ISO 8601; UTC if it has no offset", max_length=40)] | None = None


class SweepRequest(Struct, frozen=True, kw_only=True, rename="camel"):
    """A sweep. `request`: the task that each trial is, as POST /training-tasks has it."""

    name: Annotated[str, describe_field("required", max_length=80, trim=True)] = ""
    objective: ObjectiveRequest = ObjectiveRequest()
    method: Annotated[
        Literal["tpe", "random", "grid", "cmaes"], describe_field(choices=["tpe", "random", "grid", "cmaes"])
    ] = "tpe"
    parameters: Annotated[dict[str, ParameterRequest], Meta(max_length=MAX_PARAMETERS)] = {}
    pruning: PruningRequest = PruningRequest()
    budget: BudgetRequest = BudgetRequest()
    parallel: Annotated[int, describe_field("trials that run at the same time", ge=1, le=MAX_PARALLEL)] = (
        DEFAULT_PARALLEL
    )
    request: Annotated[dict[str, Any], Meta(max_length=200)] = {}


@dataclass(frozen=True, slots=True)
class SweepSpec:
    """A sweep without problems. `ends_at`: in unix seconds."""

    name: str
    objective: ObjectiveRequest
    method: str
    space: tuple[Parameter, ...]
    pruning: PruningRequest
    budget: BudgetRequest
    ends_at: float | None
    parallel: int
    request: Mapping[str, Any]

    @property
    def max_trials(self) -> int:
        """Return how many trials there are at most."""
        return min(self.budget.trials or MAX_TRIALS, MAX_TRIALS)


def parse_sweep(body: Mapping[str, Any]) -> tuple[SweepSpec, list[Problem]]:
    """Return the sweep that a JSON object describes, and all that is wrong with it. Raises nothing; what could not be
    read has its default."""
    parsed, problems = json_shape.read_object(SweepRequest, body)
    space, wrong = build_space(parsed.parameters)
    problems += _leave_out_known(wrong, problems)
    ends_at, wrong = _parse_end(parsed.budget.ends_at)
    spec = SweepSpec(
        name=parsed.name,
        objective=parsed.objective,
        method=parsed.method,
        space=space,
        pruning=_fill_steps(parsed.pruning, parsed.request),
        budget=parsed.budget,
        ends_at=ends_at,
        parallel=parsed.parallel,
        request=parsed.request,
    )
    problems += wrong + _leave_out_known(_find_problems(spec, parsed), problems)
    return spec, problems


def _leave_out_known(found: Iterable[Problem], known: Iterable[Problem]) -> list[Problem]:
    """Return the problems of fields of which none is `known`, neither of the field nor of a part of it: what could not
    be read would only be reported as missing, too."""
    fields = {problem.field for problem in known}
    return [
        one
        for one in found
        if one.field not in fields and not any(field.startswith(f"{one.field}.") for field in fields)
    ]


def load_spec(stored: Mapping[str, Any]) -> SweepSpec:
    """Return the sweep that was stored after `parse_sweep` found nothing wrong with it."""
    return parse_sweep(stored)[0]


def _fill_steps(pruning: PruningRequest, request: Mapping[str, Any]) -> PruningRequest:
    """Return the pruning of ASHA with the steps of the request's hyperparameters, where it does not say how many."""
    hyperparameters = request.get("hyperparameters")
    steps = hyperparameters.get("totalSteps") if isinstance(hyperparameters, Mapping) else None
    if pruning.method != "asha" or pruning.max_steps is not None or not isinstance(steps, int) or steps < 1:
        return pruning
    return structs.replace(pruning, max_steps=steps)


def _parse_end(text: str | None) -> tuple[float | None, list[Problem]]:
    if text is None:
        return None, []
    try:
        moment = datetime.fromisoformat(text)
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp(), []
    except (ValueError, OverflowError):
        return None, [Problem("budget.endsAt", "SWEEP_TIME_INVALID", {"found": text})]


def _find_problems(spec: SweepSpec, parsed: SweepRequest) -> list[Problem]:
    found = []
    if not spec.name:
        found.append(Problem("name", "SWEEP_VALUE_MISSING"))
    if not spec.objective.metric:
        found.append(Problem("objective.metric", "SWEEP_VALUE_MISSING"))
    if not spec.request:
        found.append(Problem("request", "SWEEP_VALUE_MISSING"))
    if not parsed.parameters:
        found.append(Problem("parameters", "SWEEP_PARAMETERS_REQUIRED"))
    found += _find_method_problems(spec)
    budget = spec.budget
    if spec.method != "grid" and not (budget.trials or budget.gpu_hours or budget.cost or budget.ends_at):
        found.append(Problem("budget", "SWEEP_BUDGET_REQUIRED"))
    pruning = spec.pruning
    if pruning.method == "asha" and pruning.max_steps is None:
        found.append(Problem("pruning.maxSteps", "SWEEP_STEPS_REQUIRED"))
    if pruning.max_steps is not None and pruning.max_steps < pruning.min_steps:
        params = {"low": pruning.min_steps, "found": pruning.max_steps}
        found.append(Problem("pruning.maxSteps", "SWEEP_STEPS_REVERSED", params))
    return found


def _find_method_problems(spec: SweepSpec) -> list[Problem]:
    if spec.method == "cmaes":
        free = [one for one in spec.space if one.is_range and not one.when]
        return (
            [] if len(free) >= 2 or not spec.space else [Problem("method", "SWEEP_CMAES_RANGES", {"found": len(free)})]
        )
    if spec.method != "grid":
        return []
    endless = [one for one in spec.space if one.kind == "float" and one.step is None]
    if endless:
        return [Problem(f"parameters.{one.name}.step", "SWEEP_GRID_STEP", {"name": one.name}) for one in endless]
    if spec.budget.trials is None and count_grid(spec.space, MAX_TRIALS + 1) > MAX_TRIALS:
        return [Problem("parameters", "SWEEP_GRID_LARGE", {"high": MAX_TRIALS})]
    return []
