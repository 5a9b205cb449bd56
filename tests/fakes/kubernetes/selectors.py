"""Label and field selectors, as query strings and as objects."""

import re
from collections.abc import Callable
from typing import Any

from tests.fakes.kubernetes.errors import bad_request
from tests.fakes.kubernetes.resources import PODS, Resource

Test = Callable[[dict[str, Any]], bool]
_SET = re.compile(r"\s*([\w./-]+)\s+(in|notin)\s+\(([^)]*)\)\s*")
_EQUAL = re.compile(r"\s*([\w./-]+)\s*(==|=|!=)\s*([\w.-]*)\s*")
_EXISTS = re.compile(r"\s*(!?)\s*([\w./-]+)\s*")
_FIELDS = {"metadata.name", "metadata.namespace"}
_POD_FIELDS = {"spec.nodeName", "spec.restartPolicy", "spec.schedulerName", "status.phase", "status.podIP"}
_EVENT_FIELDS = {
    "involvedObject.kind", "involvedObject.namespace", "involvedObject.name", "involvedObject.uid",
    "involvedObject.apiVersion", "involvedObject.resourceVersion", "involvedObject.fieldPath", "reason",
    "reportingComponent", "source", "type",
}  # fmt: skip


def labels(text: str) -> Test:
    """Raises the API server's 400 for what is no selector."""
    tests = [_label(part) for part in re.split(r",(?![^(]*\))", text) if part.strip()]
    return lambda obj: all(test(obj["metadata"].get("labels") or {}) for test in tests)


def _label(part: str) -> Callable[[dict[str, str]], bool]:
    if found := _SET.fullmatch(part):
        key, operator, values = found[1], found[2], {value.strip() for value in found[3].split(",")}
        return lambda has: (has.get(key) in values) == (operator == "in")
    if found := _EQUAL.fullmatch(part):
        key, operator, value = found.groups()
        return lambda has: (has.get(key) == value) == (operator != "!=")
    if found := _EXISTS.fullmatch(part):
        absent, key = found.groups()
        return lambda has: (key not in has) == bool(absent)
    raise bad_request(f"unable to parse requirement: found '{part}', expected: ',' or \"end of string\"")


def label_object(selector: dict[str, Any], has: dict[str, str]) -> bool:
    """A LabelSelector or NodeSelectorTerm: `matchLabels` and `matchExpressions`."""
    if any(has.get(key) != value for key, value in (selector.get("matchLabels") or {}).items()):
        return False
    return all(_expression(one, has) for one in selector.get("matchExpressions") or [])


def _expression(expression: dict[str, Any], has: dict[str, str]) -> bool:
    value, values = has.get(expression["key"]), expression.get("values") or []
    match expression["operator"]:
        case "In":
            return value in values
        case "NotIn":
            return value not in values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt":
            return value is not None and int(value) > int(values[0])
        case "Lt":
            return value is not None and int(value) < int(values[0])
    raise bad_request(f"{expression['operator']!r} is not a valid label selector operator")


def fields(resource: Resource, text: str) -> Test:
    allowed = _FIELDS | (_POD_FIELDS if resource is PODS else set())
    if resource.plural == "events":
        allowed |= _EVENT_FIELDS
    if resource.plural == "jobs":
        allowed |= {"status.successful"}
    if resource.plural in ("nodes",):
        allowed |= {"spec.unschedulable"}
    tests = [_field(part, allowed) for part in text.split(",") if part]
    return lambda obj: all(test(obj) for test in tests)


def _field(part: str, allowed: set[str]) -> Test:
    if not (found := re.fullmatch(r"([\w.]+)(==|=|!=)(.*)", part)):
        raise bad_request(f"invalid selector: '{part}'; can't understand '{part}'")
    path, operator, value = found.groups()
    if path not in allowed:
        raise bad_request(f"field label not supported: {path}")
    return lambda obj: (_at(obj, path) == value) == (operator != "!=")


def _at(obj: dict[str, Any], path: str) -> str:
    value: Any = obj
    for name in path.split("."):
        value = value.get(name) if isinstance(value, dict) else None
    return "" if value is None else str(value)
