"""Placeholders of a saved request: which there are, which values they may have, and the request with its values. Pure.

    "--lr={{lr}}"      is part of a text: the value as text
    "{{lr}}"           is the whole value, of the parameter's type: a number, a list of environments
    "{{data.dataset}}" is the dataset of a dataset version

Other texts in double braces are left alone where ranks know them (`{{rank}}` is the text `{rank}` for a rank,
`fermi.runner.placeholders`), and are problems where they do not: they would be typing errors.
"""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fermi.jobs.rank_env import RANK_PLACEHOLDERS
from fermi.jobs.spec import Problem

STRING, INTEGER, NUMBER, BOOLEAN, CHOICE = "string", "integer", "number", "boolean", "choice"
ENVIRONMENTS, DATASET_VERSION = "environments", "datasetVersion"
TYPES = (STRING, INTEGER, NUMBER, BOOLEAN, CHOICE, ENVIRONMENTS, DATASET_VERSION)
NAME_PATTERN = r"[A-Za-z][A-Za-z0-9_]{0,39}"
MAX_PARAMETERS, MAX_CHOICES, MAX_TEXT, MAX_ENVIRONMENTS = 50, 100, 4_000, 1_000
DATASET_PART = ".dataset"
TEXT_FIELDS = frozenset({"taskName", "env", "secretEnv", "entrypoint"})
"""Fields of the request in which all values are texts: arguments, for example."""
_TOKEN = re.compile(rf"\{{\{{({NAME_PATTERN}(?:\.[A-Za-z]+)?)\}}\}}")
MAX_NUMBER = 2**53
"""Numbers beyond it are not exact in JSON."""


@dataclass(frozen=True, slots=True)
class Place:
    """A placeholder in a request. `path`: where, as problems name fields; `whole`: nothing else stands there."""

    path: str
    name: str
    whole: bool

    @property
    def parameter(self) -> str:
        """Return the name of the parameter that fills it."""
        return self.name.partition(".")[0]


def find_places(value: Any, path: str = "") -> Iterator[Place]:
    """Yield the placeholders of a request, in its order."""
    if isinstance(value, str):
        for match in _TOKEN.finditer(value):
            yield Place(path, match[1], match[0] == value)
    elif isinstance(value, Mapping):
        for name, inner in value.items():
            yield from find_places(inner, f"{path}.{name}" if path else str(name))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from find_places(inner, f"{path}.{index}")


def place_parameter(request: Any, path: str, name: str) -> tuple[Any, Any]:
    """Return the request with a placeholder at `path`, and the value that was there. Raises LookupError where the
    request has no such field."""
    first, _, rest = path.partition(".")
    if isinstance(request, Mapping):
        if first not in request:
            raise LookupError(path)
        inner, found = (f"{{{{{name}}}}}", request[first]) if not rest else place_parameter(request[first], rest, name)
        return {**request, first: inner}, found
    if isinstance(request, list) and first.isdecimal() and int(first) < len(request):
        at = int(first)
        inner, found = (f"{{{{{name}}}}}", request[at]) if not rest else place_parameter(request[at], rest, name)
        return [*request[:at], inner, *request[at + 1 :]], found
    raise LookupError(path)


def find_problems(request: Mapping[str, Any], parameters: Sequence[Mapping[str, Any]]) -> list[Problem]:
    """Return what is wrong with a template: with its parameters, and with its placeholders."""
    found, known = [], dict[str, Mapping[str, Any]]()
    for number, one in enumerate(parameters):
        field, name = f"parameters.{number}", one["name"]
        if not re.fullmatch(NAME_PATTERN, name) or name in RANK_PLACEHOLDERS:
            found.append(Problem(f"{field}.name", "PARAMETER_NAME_INVALID", {"found": name}))
        elif name in known:
            found.append(Problem(f"{field}.name", "PARAMETER_TWICE", {"name": name}))
        known[name] = one
        found += _find_parameter_problems(one, field)
    places = list(find_places(request))
    for place in places:
        if place.name in RANK_PLACEHOLDERS:
            continue
        parameter = known.get(place.parameter)
        if parameter is None or (place.name != place.parameter and not _has_part(parameter, place.name)):
            allowed = ", ".join(known) or "–"
            params = {"found": f"{{{{{place.name}}}}}", "path": place.path, "allowed": allowed}
            found.append(Problem(f"request.{place.path}", "PLACEHOLDER_UNKNOWN", params))
        elif parameter["type"] == ENVIRONMENTS and not place.whole:
            params = {"name": place.name, "path": place.path}
            found.append(Problem(f"request.{place.path}", "PLACEHOLDER_NOT_WHOLE", params))
    used = {place.parameter for place in places}
    found += [
        Problem(f"parameters.{number}.name", "PARAMETER_UNUSED", {"name": one["name"]})
        for number, one in enumerate(parameters)
        if one["name"] not in used | RANK_PLACEHOLDERS
    ]
    return found


def _has_part(parameter: Mapping[str, Any], name: str) -> bool:
    return parameter["type"] == DATASET_VERSION and name == f"{parameter['name']}{DATASET_PART}"


def _find_parameter_problems(one: Mapping[str, Any], field: str) -> Iterator[Problem]:
    kind, low, high = one["type"], one.get("low"), one.get("high")
    if (low is not None or high is not None) and kind not in (INTEGER, NUMBER):
        yield Problem(f"{field}.low", "PARAMETER_BOUNDS_OF_TEXT", {"type": kind})
    elif low is not None and high is not None and low > high:
        yield Problem(f"{field}.high", "PARAMETER_BOUNDS_CROSSED", {"low": low, "high": high})
    if kind == CHOICE and not one.get("choices"):
        yield Problem(f"{field}.choices", "PARAMETER_CHOICES_REQUIRED", {"name": one["name"]})
    elif one.get("choices") and kind != CHOICE:
        yield Problem(f"{field}.choices", "PARAMETER_CHOICES_OF_OTHER", {"type": kind})
    elif one.get("default") is not None and (wrong := check_value(one, one["default"], f"{field}.default")):
        yield wrong


def check_value(parameter: Mapping[str, Any], value: Any, field: str) -> Problem | None:
    """Return what is wrong with the value of a parameter; None: nothing."""
    kind, name = parameter["type"], parameter["name"]
    if not _has_type(kind, value):
        return Problem(field, "PARAMETER_TYPE", {"name": name, "type": kind, "found": _format(value)})
    if kind in (INTEGER, NUMBER):
        low, high = parameter.get("low"), parameter.get("high")
        low, high = -MAX_NUMBER if low is None else low, MAX_NUMBER if high is None else high
        if not low <= value <= high:
            return Problem(field, "PARAMETER_RANGE", {"name": name, "found": value, "low": low, "high": high})
    if kind == CHOICE and value not in parameter["choices"]:
        allowed = ", ".join(parameter["choices"])
        return Problem(field, "PARAMETER_CHOICE", {"name": name, "found": _format(value), "allowed": allowed})
    return None


def _has_type(kind: str, value: Any) -> bool:
    match kind:
        case "integer":
            return isinstance(value, int) and not isinstance(value, bool)
        case "number":
            return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
        case "boolean":
            return isinstance(value, bool)
        case "environments":
            texts = isinstance(value, list) and 0 < len(value) <= MAX_ENVIRONMENTS
            return texts and all(isinstance(one, str) and 0 < len(one) <= 100 for one in value)
    return isinstance(value, str) and len(value) <= MAX_TEXT and (kind == STRING or bool(value))


def _format(value: Any) -> str:
    return str(shorten(value if isinstance(value, str) else str(value)))


def shorten(value: Any) -> Any:
    """Return a parameter of a text as it is stored: long texts are cut."""
    return f"{value[:199]}…" if isinstance(value, str) and len(value) > 200 else value


def read_values(
    parameters: Sequence[Mapping[str, Any]], given: Mapping[str, Any]
) -> tuple[dict[str, Any], list[Problem]]:
    """Return the value of each parameter, the given one or else its default, and what is wrong with them, by the paths
    `values.NAME`. Values with a problem are left out."""
    found, problems = dict[str, Any](), []
    known = {one["name"] for one in parameters}
    for name in given:
        if name not in known:
            params = {"found": _format(name), "allowed": ", ".join(sorted(known)) or "–"}
            problems.append(Problem(f"values.{_format(name)}", "PARAMETER_UNKNOWN", params))
    for one in parameters:
        name = one["name"]
        value = given[name] if given.get(name) is not None else one.get("default")
        if value is None:
            problems.append(Problem(f"values.{name}", "PARAMETER_REQUIRED", {"name": one.get("label") or name}))
        elif wrong := check_value(one, value, f"values.{name}"):
            problems.append(wrong)
        else:
            found[name] = value
    return found, problems


def fill_request(request: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the request with the values of its placeholders; those without a value stay. In fields that hold texts, a
    number or a boolean becomes text."""
    return {name: _fill(value, values, texts=name in TEXT_FIELDS) for name, value in request.items()}


def _fill(value: Any, values: Mapping[str, Any], *, texts: bool) -> Any:
    if isinstance(value, str):
        whole = _TOKEN.fullmatch(value)
        if whole and whole[1] in values:
            found = values[whole[1]]
            return _to_text(found) if texts and not isinstance(found, list) else found
        return _TOKEN.sub(lambda match: _to_text(values[match[1]]) if match[1] in values else match[0], value)
    if isinstance(value, Mapping):
        return {name: _fill(inner, values, texts=texts) for name, inner in value.items()}
    return [_fill(inner, values, texts=texts) for inner in value] if isinstance(value, list) else value


def _to_text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def merge_request(request: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return the request with changes: objects are merged, other values replaced."""
    merged = dict(request)
    for name, value in changes.items():
        before = merged.get(name)
        both = isinstance(before, Mapping) and isinstance(value, Mapping)
        merged[name] = merge_request(before, value) if both else value  # type: ignore[arg-type]
    return merged


def name_parameters(problems: Sequence[Problem], request: Mapping[str, Any]) -> list[Problem]:
    """Return the problems of a filled request, each with the parameter as its field where that field of the template is
    a placeholder: people who fill a form in know its parameters alone."""
    owners = {place.path: place.parameter for place in find_places(request)}
    found = []
    for problem in problems:
        path = problem.field
        while path and path not in owners:
            path = path.rpartition(".")[0]
        field = f"values.{owners[path]}" if path and owners[path] not in RANK_PLACEHOLDERS else problem.field
        found.append(Problem(field, problem.code, problem.params))
    return found
