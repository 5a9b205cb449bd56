"""Cursors of lists: where a page ended, so that the next one begins there, whatever was added or deleted meanwhile.

A cursor is opaque to clients: the value of the column that the list is ordered by, and the key of the last row.
"""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import orjson
from django.core.exceptions import ValidationError
from django.db.models import Field, JSONField, Model, Q
from django.db.models.constants import LOOKUP_SEP

from apps.common.encoding import encode_json
from apps.common.errors import ApiError
from apps.common.pages import Column


def get_column_path(column: Column) -> str:
    """Return the lookup path of the column that a list is ordered by."""
    return column.removeprefix("-") if isinstance(column, str) else str(column.expression.name)  # type: ignore[union-attr]


def make_cursor(row: Mapping[str, Any], column: Column, model: type[Model]) -> str | None:
    """Return the cursor after `row`, in a list ordered by `column` and then by key; None for values within a JSON
    document, which change while a client pages."""
    if isinstance(_get_field(model, get_column_path(column)), JSONField):
        return None
    inside = [_name_order(column), row[get_column_path(column)], row["id"]]
    return urlsafe_b64encode(encode_json(inside)).decode().rstrip("=")


def build_cursor_condition(cursor: str, column: Column, model: type[Model]) -> Q:
    """Return the condition for the rows after the cursor, in a list of that order. Raises ApiError 400 CURSOR_INVALID
    for anything else than a cursor of this order."""
    try:
        name, value, key = orjson.loads(urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
        field = _get_field(model, get_column_path(column))
        if (
            name != _name_order(column)
            or isinstance(field, JSONField)
            or not isinstance(key, str)
            or "\0" in f"{value}{key}"
        ):
            raise ValueError(name)
        if value is not None or not field.null:
            value = field.clean(value, None)
        if isinstance(value, datetime):
            value = value.astimezone(UTC)
    except (Error, ValueError, TypeError, OverflowError, ValidationError):
        raise ApiError(400, "CURSOR_INVALID", "cursor", cursor=cursor) from None
    return _build_condition(get_column_path(column), _is_descending(column), value, key, nulls=field.null)


def _build_condition(name: str, descends: bool, value: Any, key: str, *, nulls: bool) -> Q:
    """Return the condition. Nulls are last in both directions. The first condition is weaker than the second, but an
    index can answer it."""
    if value is None:
        return Q(**{f"{name}__isnull": True}, pk__gt=key)
    beyond = "lt" if descends else "gt"
    further = Q(**{f"{name}__{beyond}": value}) | Q(**{name: value}, pk__gt=key)
    found = Q(**{f"{name}__{beyond}e": value}) & further
    return found | Q(**{f"{name}__isnull": True}) if nulls else found


def _name_order(column: Column) -> str:
    return f"-{get_column_path(column)}" if _is_descending(column) else get_column_path(column)


def _is_descending(column: Column) -> bool:
    return column.startswith("-") if isinstance(column, str) else column.descending


def _get_field(model: type[Model], name: str) -> "Field[Any, Any]":
    """Return the field at the end of a path, or the JSON field that the path leads into."""
    first, _, rest = name.partition(LOOKUP_SEP)
    field: Any = model._meta.get_field(first)
    return _get_field(field.related_model, rest) if rest and field.is_relation else field
