"""Checks a framework's options against the JSON Schema that the API and the console get."""

from collections.abc import Container, Mapping
from typing import Any

from fermi.jobs import json_shape
from fermi.jobs.spec import JobSpec, Problem
from fermi.messages import NestedText
from fermi.schema import suggestions, values


def build_schema(**properties: Mapping[str, Any]) -> dict[str, Any]:
    """Return the schema of an options object that allows nothing but `properties`."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "additionalProperties": False,
        "properties": properties,
    }


def find_problems(spec: JobSpec, options: Mapping[str, Any], leave_out: Container[str] = ()) -> list[Problem]:
    """Return what of `spec.options` the schema `options` does not allow. `leave_out`: options that the framework checks
    itself."""
    known = options["properties"]
    found = []
    for name, value in spec.options.items():
        if name in leave_out:
            continue
        field = f"distributedConfig.options.{name}"
        if name not in known:
            listed = ", ".join(known) or "–"
            unknown = {"name": name, "allowed": listed, "nearest": suggestions.suggest_name(name, known)}
            found.append(Problem(field, "OPTION_UNKNOWN", unknown))
        elif not is_valid(value, known[name]):
            rule = known[name]
            params = {
                "name": name,
                "found": value,
                "allowed": describe_allowed(rule),
                "nearest": suggest_value(value, rule),
            }
            found.append(Problem(field, "OPTION_INVALID", params))
    return found


def read_option(spec: JobSpec, options: Mapping[str, Any], name: str) -> Any:
    """Return the option that the user chose, or the schema's default."""
    return spec.options.get(name, options["properties"][name].get("default"))


def describe_allowed(rule: Mapping[str, Any]) -> NestedText:
    """Return the description of what a property may be."""
    if "enum" in rule:
        return values.describe_choices(rule["enum"])
    return values.describe_type(rule)


def suggest_value(value: Any, rule: Mapping[str, Any]) -> Any:
    """Return the nearest valid value, or the default; None where there is neither."""
    default = rule.get("default")
    if "enum" in rule:
        return suggestions.suggest_name(value, rule["enum"]) or default
    if rule.get("type") == "boolean":
        return default if (switch := suggestions.suggest_boolean(value)) is None else switch
    low, high = rule.get("minimum"), rule.get("maximum")
    found = suggestions.suggest_number(value, low, high, integer=rule.get("type") == "integer")
    if found is None or not is_valid(found, rule):
        return low if default is None else default
    return found


def is_valid(value: Any, rule: Mapping[str, Any]) -> bool:
    """Return whether the value is valid."""
    return not json_shape.find_problems(rule, value)
