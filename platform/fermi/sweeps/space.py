"""The parameters of a sweep: ranges and choices, some of them only under a condition on others."""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from fermi.jobs.spec import Problem
from fermi.planning.request import describe_field

MAX_VALUES = 1_000
"""Choices of one parameter."""
MAX_TEXT_LENGTH = 1_000
MAX_NUMBER = 1e300
MIN_STEP = 1e-300
NAME_PATTERN = re.compile(r"[A-Za-z_][A-Za-z0-9_.\-]{0,99}")

Value = str | int | float | bool
"""A parameter's value."""

_AnyValue = Annotated[Any, Meta(description="a text, a number, true or false")]
_NUMBER = Meta(ge=-MAX_NUMBER, le=MAX_NUMBER)


class ParameterRequest(Struct, frozen=True, kw_only=True, rename="camel"):
    """A parameter, by one of `value`, `values`, and `min` with `max`. `when`: it exists only where each parameter that
    is named here has the value, or one of the values."""

    value: Any = None
    values: Annotated[tuple[_AnyValue, ...], Meta(max_length=MAX_VALUES)] | None = None
    min: Annotated[float, _NUMBER] | None = None
    max: Annotated[float, _NUMBER] | None = None
    step: (
        Annotated[float, describe_field("of a range: its values are min, min + step, …", ge=MIN_STEP, le=MAX_NUMBER)]
        | None
    ) = None
    scale: Annotated[Literal["linear", "log"], describe_field(choices=["linear", "log"])] = "linear"
    type: Annotated[
        Literal["float", "int"], describe_field("float by default; int for whole numbers", choices=["float", "int"])
    ] = "float"
    when: Annotated[dict[str, Any], Meta(max_length=20)] = {}


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter. `kind`: float, int, choice or fixed; `values`: the choices, or the one fixed value. `when`: by
    parameter, the values with which this one exists."""

    name: str
    kind: str
    low: float = 0.0
    high: float = 0.0
    step: float | None = None
    log: bool = False
    values: tuple[Value, ...] = ()
    when: Mapping[str, tuple[Value, ...]] = field(default_factory=dict)

    @property
    def is_range(self) -> bool:
        return self.kind in ("float", "int")

    def is_active(self, chosen: Mapping[str, Value]) -> bool:
        """Return True if the parameter exists beside what was chosen for those before it."""
        return all(name in chosen and chosen[name] in allowed for name, allowed in self.when.items())

    def list_values(self) -> Iterator[Value]:
        """Yield all values, of a range those at its steps, in order."""
        if not self.is_range:
            yield from self.values
            return
        step = self.step or 1.0
        count = math.floor((self.high - self.low) / step + 1e-9) + 1
        for index in range(count):
            number = self.low + index * step
            yield int(number) if self.kind == "int" else min(number, self.high)


def build_space(requests: Mapping[str, ParameterRequest]) -> tuple[tuple[Parameter, ...], list[Problem]]:
    """Return the parameters without problems, each after those that its condition names, and all problems."""
    problems: list[Problem] = []
    built = {}
    for name, request in requests.items():
        wrong = _find_name_problems(name)
        parameter, more = _build_parameter(name, request)
        problems += wrong + more
        if not (wrong or more):
            built[name] = parameter
    problems += _find_condition_problems(requests, built)
    ordered = _order_parameters(list(built.values()))
    if len(ordered) < len(built):
        names = {one.name for one in ordered}
        late = [name for name in built if name not in names]
        if not any(problem.field.startswith("parameters.") for problem in problems):
            params = {"names": ", ".join(late)}
            problems.append(Problem(f"parameters.{late[0]}.when", "SWEEP_CONDITION_CIRCLE", params))
    return tuple(ordered), problems


def list_grid(space: Sequence[Parameter]) -> Iterator[dict[str, Value]]:
    """Yield all combinations of values, each once, in the order of the parameters."""
    yield from _extend_combination(space, 0, {})


def count_grid(space: Sequence[Parameter], limit: int) -> int:
    """Return how many combinations there are, at most `limit`."""
    return sum(1 for _ in islice(list_grid(space), limit))


def _extend_combination(space: Sequence[Parameter], index: int, chosen: dict[str, Value]) -> Iterator[dict[str, Value]]:
    if index == len(space):
        yield dict(chosen)
    elif not space[index].is_active(chosen):
        yield from _extend_combination(space, index + 1, chosen)
    else:
        for value in space[index].list_values():
            yield from _extend_combination(space, index + 1, {**chosen, space[index].name: value})


def _find_name_problems(name: str) -> list[Problem]:
    if NAME_PATTERN.fullmatch(name):
        return []
    return [Problem(f"parameters.{name[:100]}", "SWEEP_NAME_INVALID", {"name": name[:100]})]


def _build_parameter(name: str, request: ParameterRequest) -> tuple[Parameter, list[Problem]]:
    """Return the parameter, which is of no use where there are problems."""
    at = f"parameters.{name[:100]}"
    has_range = request.min is not None or request.max is not None
    given = [request.value is not None, request.values is not None, has_range]
    empty = Parameter(name, "fixed")
    if sum(given) != 1:
        return empty, [Problem(at, "SWEEP_PARAMETER_KIND", {"name": name[:100]})]
    when = {parent: _as_values(allowed) for parent, allowed in request.when.items()}
    if not has_range:
        values = request.values if request.values is not None else (request.value,)
        kind, field = ("choice", f"{at}.values") if request.values is not None else ("fixed", f"{at}.value")
        return Parameter(name, kind, values=tuple(values), when=when), _find_value_problems(field, values)
    if request.min is None or request.max is None:
        missing = "min" if request.min is None else "max"
        return empty, [Problem(f"{at}.{missing}", "SWEEP_VALUE_MISSING")]
    parameter = Parameter(name, request.type, request.min, request.max, request.step, request.scale == "log", when=when)
    return parameter, _find_range_problems(at, parameter)


def _as_values(allowed: Any) -> tuple[Value, ...]:
    return tuple(allowed) if isinstance(allowed, list | tuple) else (allowed,)


def _find_value_problems(field: str, values: Sequence[Any]) -> list[Problem]:
    if not values:
        return [Problem(field, "FIELD_BLANK", {"found": []})]
    found = []
    for index, value in enumerate(values):
        at = field if field.endswith(".value") else f"{field}.{index}"
        if not is_value(value):
            found.append(Problem(at, "SWEEP_VALUE_INVALID", {"high": MAX_TEXT_LENGTH}))
        elif any(value == other for other in values[:index]):
            found.append(Problem(at, "SWEEP_VALUE_REPEATED", {"found": value}))
    return found


def is_value(value: Any) -> bool:
    """Return True if a parameter can have this value: a text, a finite number, true or false."""
    if isinstance(value, str):
        return len(value) <= MAX_TEXT_LENGTH and "\x00" not in value
    return isinstance(value, bool | int | float) and abs(value) <= MAX_NUMBER


def _find_range_problems(at: str, one: Parameter) -> list[Problem]:
    found = []
    if one.high <= one.low:
        found.append(Problem(f"{at}.max", "SWEEP_RANGE_EMPTY", {"low": one.low, "found": one.high}))
    if one.log and one.low <= 0:
        found.append(Problem(f"{at}.min", "SWEEP_LOG_POSITIVE", {"found": one.low}))
    if one.log and one.step is not None:
        found.append(Problem(f"{at}.step", "SWEEP_LOG_STEP", {"name": one.name}))
    if one.kind == "int":
        parts = {"min": one.low, "max": one.high, "step": one.step or 1.0}
        found += [
            Problem(f"{at}.{name}", "SWEEP_INT_WHOLE", {"found": number})
            for name, number in parts.items()
            if not float(number).is_integer() or abs(number) > 2**53
        ]
    return found


def _find_condition_problems(requests: Mapping[str, ParameterRequest], built: Mapping[str, Parameter]) -> list[Problem]:
    found = []
    for name, one in built.items():
        for parent, allowed in one.when.items():
            at = f"parameters.{name}.when.{parent[:100]}"
            if parent not in requests or parent == name:
                known = ", ".join(other for other in requests if other != name) or "–"
                found.append(Problem(at, "SWEEP_CONDITION_UNKNOWN", {"name": parent[:100], "allowed": known[:500]}))
            elif not allowed or not all(map(is_value, allowed)):
                found.append(Problem(at, "SWEEP_VALUE_INVALID", {"high": MAX_TEXT_LENGTH}))
            elif (above := built.get(parent)) and not above.is_range:
                params = {"name": parent, "allowed": ", ".join(map(str, above.values))[:500]}
                found += [
                    Problem(at, "SWEEP_CONDITION_VALUE", {**params, "found": str(value)})
                    for value in allowed
                    if value not in above.values
                ]
    return found


def _order_parameters(parameters: Sequence[Parameter]) -> list[Parameter]:
    """Return the parameters, each after those that its condition names; without those of a circle."""
    ordered: dict[str, Parameter] = {}
    left = list(parameters)
    while ready := [one for one in left if all(name in ordered for name in one.when)]:
        ordered |= {one.name: one for one in ready}
        left = [one for one in left if one.name not in ordered]
    return list(ordered.values())
