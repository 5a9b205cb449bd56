"""Validation of what clients send. Unknown names and values of another JSON type are refused, never ignored or
converted. Only where programs of another version may know more names (`TAKES_MORE = True` in the serializer) an unknown
name is left out."""

import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from itertools import chain, islice
from typing import Any, TypeVar

from django.http import QueryDict
from rest_framework import serializers
from rest_framework.fields import empty

from apps.common.bounds import MAX_DEPTH, MAX_ENTRIES, MAX_ITEMS, MAX_NAMES, MAX_PROBLEMS
from apps.common.errors import ProblemsError
from apps.common.pages import OrderingField
from fermi.jobs import json_shape
from fermi.jobs.spec import Problem
from fermi.messages import NestedText
from fermi.schema import values

Kind = TypeVar("Kind")

_CODES = {
    "required": "FIELD_REQUIRED",
    "null": "FIELD_NULL",
    "blank": "FIELD_BLANK",
    "empty": "FIELD_BLANK",
    "min_length": "FIELD_LENGTH",
    "max_length": "FIELD_LENGTH",
    "min_value": "FIELD_RANGE",
    "max_value": "FIELD_RANGE",
    "invalid_choice": "FIELD_CHOICE",
}
_QUERY_PATTERNS = (serializers.BooleanField, "true|false"), (serializers.IntegerField, "-?[0-9]{1,20}")


def parse_body(serializer: type[serializers.Serializer], data: Any, *, partial: bool = False) -> dict[str, Any]:
    """Return the validated body. Raises ProblemsError with all problems of its shape; the contents of what is too long
    are not checked. With `partial`, top-level fields may be left out, but no nested ones."""
    if not isinstance(data, Mapping):
        raise ProblemsError([Problem("", "BODY_NOT_OBJECT")])
    form = serializer(data=data)
    for field in form.fields.values() if partial else ():
        field.required, field.default = False, empty
    problems = list(islice(chain(_check_types(form, data, ""), _find_unstorable(data)), 2 * MAX_PROBLEMS))
    if len(problems) > MAX_PROBLEMS:
        raise ProblemsError(problems)
    return _validate_form(form, problems)


def refuse_body(data: Any) -> None:
    """Raise ProblemsError if the body of an operation that takes none has fields."""
    if data:
        parse_body(NoFields, data)


def read_struct(kind: type[Kind], data: Any) -> tuple[Kind, list[Problem]]:
    """Return the body as `kind`, without the fields whose shape is wrong, and the problems with these: the caller can
    then report all problems at once. Raises ProblemsError for a body that is no object."""
    if not isinstance(data, Mapping):
        raise ProblemsError([Problem("", "BODY_NOT_OBJECT")])
    nul = list(_find_unstorable(data))
    for problem in nul:
        data = _remove_path(data, problem.field)
    asked, wrong = json_shape.read_object(kind, data)
    return asked, [*nul, *wrong]


def parse_body_partially(
    serializer: type[serializers.Serializer], data: Any, *, partial: bool = False
) -> tuple[dict[str, Any], list[Problem]]:
    """Return the validated body without the fields whose shape is wrong, and the problems with these: the caller can
    then report all problems at once. Raises ProblemsError if nothing can be left out."""
    try:
        return parse_body(serializer, data, partial=partial), []
    except ProblemsError as error:
        reduced = data
        for problem in error.problems:
            reduced = _remove_path(reduced, problem.field)
        try:
            return parse_body(serializer, reduced, partial=partial), error.problems
        except ProblemsError:
            raise error from None


class NoFields(serializers.Serializer):
    """Query of an operation that takes none."""


class Strict(serializers.Serializer):
    """Query of an operation with a body and without filters."""

    strict = serializers.BooleanField(required=False, help_text="unknown fields are refused with it and without it")


_REMOVED: Any = object()


def _remove_path(value: Any, path: str) -> Any:
    """Return `value` without what `path` leads to. A list is removed as a whole, because the indexes of its other items
    would change."""
    if not isinstance(value, Mapping):
        return _REMOVED
    name = max((key for key in value if path == key or path.startswith(f"{key}.")), key=len, default=None)
    if name is None:
        return value
    inner = _remove_path(value[name], path[len(name) + 1 :]) if path != name else _REMOVED
    return {key: inner if key == name else held for key, held in value.items() if key != name or inner is not _REMOVED}


def parse_query(serializer: type[serializers.Serializer], params: QueryDict) -> dict[str, Any]:
    """Return the validated query string; an empty text filters nothing, `ordering` becomes what `order_by` takes."""
    return dict(_parse_query_string(serializer, params.urlencode()))


@lru_cache(512)
def _parse_query_string(serializer: type[serializers.Serializer], encoded: str) -> dict[str, Any]:
    """Return the parsed query. It depends on these two arguments only, and pages send the same queries again and again,
    so results are cached."""
    params = QueryDict(encoded)
    form = serializer(data={})
    lists = {name for name, field in form.fields.items() if isinstance(field, serializers.ListField)}
    given = {name: params.getlist(name) if name in lists else params[name] for name in params}
    form.initial_data = given
    query = _validate_form(form, [*_find_unknown_names(form, given, ""), *_check_query_words(form, given)])
    for name, field in form.fields.items():
        if name in lists and name in query:
            query[name] = [value for value in query[name] if value != ""]
        if isinstance(field, OrderingField):
            query[name] = field.columns(query[name])
    return query


def _validate_form(form: serializers.Serializer, problems: list[Problem]) -> dict[str, Any]:
    if not form.is_valid():
        known = {problem.field for problem in problems}
        problems += [problem for problem in _flatten_errors(form, form.errors, "") if problem.field not in known]
    if problems:
        fields = list(_list_paths(form, ""))
        raise ProblemsError(json_shape.add_suggestion(problem, fields) for problem in problems)
    return dict(form.validated_data)


def _check_types(field: Any, value: Any, path: str) -> Iterator[Problem]:
    """Yield unknown names and wrong JSON types, at any depth. Raises ProblemsError for a list or an object that is too
    long, before its contents are checked."""
    if value is None:
        return
    _refuse_too_long(field, value, path)
    if isinstance(field, serializers.Serializer):
        if isinstance(value, Mapping):
            yield from _find_unknown_names(field, value, path)
            for name, inner in field.fields.items():
                yield from _check_types(inner, value.get(name), _join_path(path, name))
    elif isinstance(field, serializers.ListField | serializers.ListSerializer):
        if isinstance(value, list):
            for index, item in enumerate(value):
                yield from _check_types(field.child, item, _join_path(path, index))
    elif isinstance(field, serializers.DictField):
        if isinstance(value, Mapping):
            for name, item in value.items():
                yield from _check_types(field.child, item, _join_path(path, name))
    elif expected := _find_expected_type(field, value):
        bounds = {"minimum": getattr(field, "min_value", None), "maximum": getattr(field, "max_value", None)}
        wanted = values.describe_type({"type": expected, **bounds})
        found = "…" if field.write_only else json_shape.format_value(value)
        yield Problem(path, "WRONG_TYPE", {"expected": wanted, "found": found})
    elif isinstance(value, str) and len(value) > (most := getattr(field, "max_length", None) or len(value)):
        yield Problem(path, "FIELD_LENGTH", {"detail": field.error_messages["max_length"].format(max_length=most)})


def _refuse_too_long(field: Any, value: Any, path: str) -> None:
    if isinstance(field, serializers.ListField | serializers.ListSerializer) and isinstance(value, list):
        most = getattr(field, "max_length", None) or MAX_ITEMS
    elif isinstance(field, serializers.DictField) and isinstance(value, Mapping):
        most = MAX_ENTRIES
    elif isinstance(field, serializers.Serializer) and isinstance(value, Mapping):
        most = MAX_NAMES
    else:
        return
    if len(value) > most:
        raise ProblemsError([make_too_long_problem(path, most)])


def make_too_long_problem(path: str, max_items: int) -> Problem:
    return Problem(path, "FIELD_LENGTH", {"detail": NestedText("ITEMS_AT_MOST", {"high": max_items})})


def _check_query_words(form: serializers.Serializer, values: Mapping[str, Any]) -> Iterator[Problem]:
    """Yield numbers and booleans of a query string that JSON would not write so: REST framework takes `1_000` and
    `on`."""
    for name in values.keys() & form.fields.keys():
        field = form.fields[name]
        for kind, pattern in _QUERY_PATTERNS:
            if isinstance(field, kind) and not re.fullmatch(pattern, values[name]):
                yield Problem(name, "FIELD_INVALID", {"detail": field.error_messages["invalid"]})


def _find_expected_type(field: Any, value: Any) -> str | None:
    """Return the JSON type that was expected, if the value has another one."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    match field:
        case serializers.BooleanField():
            return None if isinstance(value, bool) else "boolean"
        case serializers.IntegerField():
            return None if is_number and float(value).is_integer() else "integer"
        case serializers.FloatField():
            return None if is_number else "number"
        case serializers.CharField():
            return None if isinstance(value, str) else "string"
    return None


def _find_unstorable(data: Any) -> Iterator[Problem]:
    """Yield values with U+0000, which PostgreSQL stores neither as text nor within JSON. Iterative, because a body may
    be nested very deep; raises at once for one that is too deep or has too long a list, since later checks would
    recurse."""
    left = [("", data, 1)]
    while left:
        path, value, depth = left.pop()
        if depth > MAX_DEPTH and isinstance(value, Mapping | list):
            raise ProblemsError([Problem("", "BODY_TOO_DEEP", {"high": MAX_DEPTH})])
        if isinstance(value, Mapping | list) and len(value) > MAX_ITEMS:
            raise ProblemsError([make_too_long_problem(path, MAX_ITEMS)])
        if isinstance(value, Mapping):
            left += [(path, name, depth) for name in value]
            left += [(_join_path(path, name), inner, depth + 1) for name, inner in value.items()]
        elif isinstance(value, list):
            left += [(_join_path(path, index), inner, depth + 1) for index, inner in enumerate(value)]
        elif isinstance(value, str) and "\0" in value:
            yield Problem(path, "NUL_CHARACTER")


def _find_unknown_names(form: serializers.Serializer, data: Mapping[str, Any], path: str) -> Iterator[Problem]:
    names = list(form.fields)
    for name in () if getattr(form, "TAKES_MORE", False) else data:
        if name not in names:
            allowed = {"allowed": ", ".join(names), **({} if names else {"none": True})}
            yield Problem(_join_path(path, name), "UNKNOWN_FIELD", {"name": name, **allowed})


def _list_paths(field: Any, path: str) -> Iterator[str]:
    """Yield the paths of all fields of a body; fields within lists have none."""
    for name, inner in field.fields.items() if isinstance(field, serializers.Serializer) else ():
        yield _join_path(path, name)
        yield from _list_paths(inner, _join_path(path, name))


def _flatten_errors(field: Any, detail: Any, path: str) -> Iterator[Problem]:
    """Yield REST framework's nested errors as problems; `field` follows along to name what is allowed."""
    if isinstance(detail, Mapping):
        for name, inner in detail.items():
            if name == "non_field_errors":
                yield from _flatten_errors(field, inner, path)
            else:
                below = field.fields.get(name) if isinstance(field, serializers.Serializer) else field.child
                yield from _flatten_errors(below, inner, _join_path(path, name))
    elif isinstance(detail, list):
        for index, inner in enumerate(detail):
            if isinstance(inner, Mapping):  # errors of a list of objects, by position; {} = nothing wrong there
                yield from _flatten_errors(getattr(field, "child", field), inner, _join_path(path, index))
            else:
                yield from _flatten_errors(field, inner, path)
    else:
        code = _CODES.get(detail.code, detail.code if detail.code.isupper() else "FIELD_INVALID")
        allowed = ", ".join(str(choice) for choice in getattr(field, "choices", ()))
        yield Problem(path, code, {"detail": str(detail), "allowed": allowed})


def _join_path(path: str, name: object) -> str:
    return f"{path}.{name}" if path else str(name)
