"""Checks JSON against a schema: returns everything that is wrong at once, and what is left without it.

The schema is what a plug-in wrote, or what `msgspec` makes of a frozen class, with two keywords of our own. `x-codes`
names the problem of a broken rule: `{"maximum": "MAX_RESTARTS_OUT_OF_RANGE"}`; empty: another rule reports it; without
the keyword the general codes are used. `x-trim`: white space around a text does not count.
"""

import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import cache
from typing import Any, TypeVar

import msgspec

from fermi.jobs.spec import Problem
from fermi.messages import NestedText
from fermi.schema import suggestions, values

MAX_SHOWN_LENGTH = 60  # characters of a value that was found
PRIVATE_KEYWORDS = ("x-flag", "x-trim")
CHECKED_KEYWORDS = frozenset({
    "additionalProperties", "anyOf", "enum", "exclusiveMaximum", "exclusiveMinimum", "items", "maxItems", "maxLength",
    "maxProperties", "maximum", "minItems", "minLength", "minProperties", "minimum", "pattern", "properties",
    "required", "type",
})  # fmt: skip
"""Keywords of JSON Schema that are checked; those of `ANNOTATIONS` mean nothing here."""
ANNOTATIONS = frozenset({"$schema", "default", "deprecated", "description", "examples", "title"})
NOT_BLANK_PATTERN = r"[^\s\x1c-\x1f\x85]|\ufeff"
"""Pattern of a text that is not blank, for other readers of the schema: ECMA's white space is not `str.strip`'s."""
MAX_UNKNOWN_NAMES = 100
"""Unknown names of an object that are reported one by one; with more of them, the object is too long."""
UNUSABLE: Any = object()
"""Stands for a value that cannot be used at all."""

Kind = TypeVar("Kind")


@cache
def build_schema(kind: Any) -> dict[str, Any]:
    """Return the JSON Schema (2020-12) of a class, without references."""
    whole = msgspec.json.schema(kind)
    return dict(_simplify_rule(whole, whole.get("$defs", {})))


def build_components(kind: type, prefix: str) -> dict[str, Any]:
    """Return the schema in parts, by name, that refer to each other as `<prefix><name>`."""
    _, parts = msgspec.json.schema_components([kind], ref_template=f"{prefix}{{name}}")
    return {name: _strip_private_keywords(_simplify_rule(part, {})) for name, part in parts.items()}


def _strip_private_keywords(rule: Any) -> Any:
    """Return the schema without the keywords that only we read."""
    if isinstance(rule, list):
        return [_strip_private_keywords(one) for one in rule]
    return (
        {k: _strip_private_keywords(v) for k, v in rule.items() if k not in PRIVATE_KEYWORDS}
        if isinstance(rule, dict)
        else rule
    )


def _simplify_rule(rule: Any, parts: Mapping[str, Any]) -> Any:
    """Return the schema without `title`, with the references in `parts` resolved, with `null` as one more type, and
    closed: names that an object's schema does not have are errors."""
    if isinstance(rule, list):
        return [_simplify_rule(one, parts) for one in rule]
    if not isinstance(rule, dict):
        return rule
    name = str(rule.get("$ref", "")).rpartition("/")[2]
    if name in parts:
        return _simplify_rule({**parts[name], **{key: value for key, value in rule.items() if key != "$ref"}}, parts)
    rule = {key: _simplify_rule(value, parts) for key, value in rule.items() if key not in ("title", "$defs")}
    match rule.get("anyOf"):
        case [{"type": str(one)} as inner, {"type": "null"}]:
            rule = {**inner, **{key: value for key, value in rule.items() if key != "anyOf"}, "type": [one, "null"]}
    if "enum" in rule:
        rule = {**rule, "type": "string", "enum": rule.pop("x-enum", rule["enum"])}
    if rule.get("type") == "object" and "properties" not in rule:
        rule = {"additionalProperties": {}, **rule}
    if "properties" in rule:
        rule["additionalProperties"] = False
    if rule.get("required") == []:
        del rule["required"]
    return rule


def read_object(kind: type[Kind], data: Mapping[str, Any]) -> tuple[Kind, list[Problem]]:
    """Return `data` as `kind`, and all that is wrong with its shape. Wrong values are left out, so that later rules can
    check the rest; a list with a wrong item is left out as a whole, because the indexes of the other items would
    change."""
    found: list[Problem] = []
    left = _check_value(build_schema(kind), data, "", found)  # type: ignore[arg-type]
    return msgspec.convert(left, kind, strict=False), [add_suggestion(problem, _list_fields(kind)) for problem in found]  # type: ignore[arg-type]


def find_problems(rule: Mapping[str, Any], value: Any, path: str = "") -> list[Problem]:
    """Return everything that is wrong with a value, which stands at `path`."""
    problems: list[Problem] = []
    _check_value(rule, value, path, problems)
    return problems


def refuse_unknown_keywords(rule: Mapping[str, Any]) -> None:
    """Raise TypeError for a schema with rules that are not checked: a keyword that is not known, or choices that are
    no texts."""
    if unknown := sorted(rule.keys() - CHECKED_KEYWORDS - ANNOTATIONS):
        raise TypeError(f"JSON Schema keywords that are not checked: {', '.join(unknown)}")
    if not all(isinstance(choice, str) for choice in rule.get("enum", ())):
        raise TypeError(f"choices that are no texts: {rule['enum']}")
    inner = [*rule.get("properties", {}).values(), *rule.get("anyOf", ()), rule.get("items")]
    for one in (*inner, rule.get("additionalProperties")):
        if isinstance(one, Mapping):
            refuse_unknown_keywords(one)


def add_suggestion(problem: Problem, fields: Iterable[str]) -> Problem:
    """Return the problem of an unknown name with the `nearest` known one, in its own object or among `fields`, the
    paths of the whole body; another problem as it is."""
    if problem.code != "UNKNOWN_FIELD":
        return problem
    within = problem.field.removesuffix(problem.params["name"])
    own = [f"{within}{name}" for name in problem.params["allowed"].split(", ") if name]
    near = suggestions.suggest_field(problem.field, [*own, *fields])
    return replace(problem, params={**problem.params, "nearest": near}) if near else problem


@cache
def _list_fields(kind: Any) -> tuple[str, ...]:
    return tuple(_list_paths(build_schema(kind), ""))


def _list_paths(rule: Mapping[str, Any], path: str) -> Iterator[str]:
    """Yield the paths of all fields of a schema; fields within lists have no path of their own."""
    for name, inner in rule.get("properties", {}).items():
        yield _join_path(path, name)
        yield from _list_paths(inner, _join_path(path, name))


def _check_value(rule: Mapping[str, Any], value: Any, path: str, problems: list[Problem]) -> Any:
    """Return what is left of the value, and append what is wrong with it to the problems."""
    if "anyOf" in rule:
        rule = next((one for one in rule["anyOf"] if _find_type(one, value)), rule["anyOf"][0])
    kinds = values.list_types(rule)
    if value is None and kinds:
        if "null" not in kinds:
            problems.append(Problem(path, rule.get("x-codes", {}).get("null", "FIELD_NULL")))
            return UNUSABLE
        return None
    if not kinds:
        return value
    kind = _find_type(rule, value)
    if kind is None:
        told = {"expected": values.describe_type(rule), "found": format_value(value)}
        inner = Problem(path, "FIELD_INVALID", {"detail": NestedText("NOT_WITHIN", told)})
        problems.append(inner if kinds[0] in ("object", "array") else Problem(path, "WRONG_TYPE", told))
        return UNUSABLE
    if kind == "object":
        return _check_object(rule, value, path, problems)
    if kind == "array":
        return _check_array(rule, value, path, problems)
    if kind == "string" and rule.get("x-trim"):
        value = value.strip()
    if broken := next(_find_broken_rules(rule, value), None):
        word, code, params = broken
        bounds = {"low": rule.get("minimum"), "high": rule.get("maximum", rule.get("maxLength"))}
        near = (
            suggestions.suggest_number(value, bounds["low"], bounds["high"], integer=True) if kind != "string" else None
        )
        own = {"found": len(value) if word == "maxLength" else value, **bounds, "nearest": near}
        special = rule.get("x-codes", {}).get(word)
        if special != "":
            problems.append(Problem(path, special or code, own if special else {"found": value, **params}))
            return UNUSABLE
    return int(value) if kind == "integer" else value


def _find_type(rule: Mapping[str, Any], value: Any) -> str | None:
    """Return which of the types that a schema allows the value has."""
    return next((kind for kind in values.list_types(rule) if kind != "null" and _TYPE_CHECKS[kind](value)), None)


def _check_object(
    rule: Mapping[str, Any], value: Mapping[str, Any], path: str, problems: list[Problem]
) -> dict[str, Any]:
    known, others = rule.get("properties", {}), rule.get("additionalProperties", True)
    left: dict[str, Any] = {}
    most = len(known) + MAX_UNKNOWN_NAMES if others is False else rule.get("maxProperties", len(value))
    if len(value) > most:
        problems.append(_build_length_problem(path, most))
        return left
    if len(value) < rule.get("minProperties", 0):
        problems.append(Problem(path, "FIELD_BLANK", {"found": value}))
    for key, inner in value.items():
        name = str(key)  # YAML knows others
        at = _join_path(path, name)
        if name not in known and others is False:
            problems.append(Problem(at, "UNKNOWN_FIELD", {"name": name, "allowed": ", ".join(known)}))
            continue
        kept = _check_value(known.get(name, {} if others is True else others), inner, at, problems)
        if kept is not UNUSABLE:
            left[name] = kept
    for name in rule.get("required", ()):
        if name not in value:
            code = known.get(name, {}).get("x-codes", {}).get("required", "FIELD_REQUIRED")
            problems.append(Problem(_join_path(path, name), code))
        if name not in left:
            left[name] = _EMPTY_VALUES.get(next(iter(values.list_types(known.get(name, {}))), ""))
    return left


def _check_array(rule: Mapping[str, Any], value: list[Any], path: str, problems: list[Problem]) -> Any:
    if len(value) > rule.get("maxItems", len(value)):
        problems.append(_build_length_problem(path, rule["maxItems"]))
        return UNUSABLE
    before = len(problems)
    each = rule.get("items", {})
    left = [_check_value(each, inner, _join_path(path, index), problems) for index, inner in enumerate(value)]
    if len(value) < rule.get("minItems", 0):
        code = rule.get("x-codes", {}).get("minItems", "FIELD_BLANK")
        problems.append(Problem(path, code))
    return left if len(problems) == before else UNUSABLE


def _build_length_problem(path: str, max_length: int) -> Problem:
    return Problem(path, "FIELD_LENGTH", {"detail": NestedText("ITEMS_AT_MOST", {"high": max_length})})


def _find_broken_rules(rule: Mapping[str, Any], value: Any) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Yield the rules that a single value breaks: the schema's keyword, the general code, and what fills its text."""
    if isinstance(value, str):
        if rule.get("minLength") and not value.strip():
            yield "minLength", "FIELD_BLANK", {}
        if len(value) > rule.get("maxLength", len(value)):
            yield "maxLength", "FIELD_LENGTH", {"detail": NestedText("LENGTH_AT_MOST", {"high": rule["maxLength"]})}
        if "enum" in rule and value not in rule["enum"]:
            allowed = ", ".join(rule["enum"])
            yield (
                "enum",
                "FIELD_CHOICE",
                {"detail": NestedText("NOT_A_CHOICE", {"found": format_value(value)}), "allowed": allowed},
            )
        if "pattern" in rule and not re.search(rule["pattern"], value):
            yield "pattern", "FIELD_INVALID", {"detail": NestedText("NOT_ALIKE", {"pattern": rule["pattern"]})}
    elif not isinstance(value, bool):
        # infinity is outside of all bounds: JSON has none
        too_low = value < rule.get("minimum", value) or value <= rule.get("exclusiveMinimum", -math.inf)
        too_high = value > rule.get("maximum", value) or value >= rule.get("exclusiveMaximum", math.inf)
        if too_low or too_high:
            detail = NestedText("NOT_WITHIN", {"found": value, "expected": values.describe_type(rule)})
            yield "minimum" if too_low else "maximum", "FIELD_RANGE", {"detail": detail}


def _is_number(value: Any) -> bool:
    """Return whether the value is a number; NaN is none."""
    return isinstance(value, int | float) and not isinstance(value, bool) and value == value


_TYPE_CHECKS: dict[str, Callable[[Any], bool]] = {
    "object": lambda value: isinstance(value, Mapping),
    "array": lambda value: isinstance(value, list),
    "string": lambda value: isinstance(value, str),
    "boolean": lambda value: isinstance(value, bool),
    "integer": lambda value: _is_number(value) and (isinstance(value, int) or value.is_integer()),
    "number": _is_number,
}

_EMPTY_VALUES: dict[str, Any] = {"string": "", "array": [], "object": {}}


def format_value(value: Any) -> str:
    """Return a value as JSON, shortened to 60 characters."""
    found = json.dumps(value, ensure_ascii=False, default=str)
    return found if len(found) <= MAX_SHOWN_LENGTH else f"{found[:MAX_SHOWN_LENGTH]}…"


def _join_path(path: str, name: object) -> str:
    return f"{path}.{name}" if path else str(name)
