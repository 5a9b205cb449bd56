"""Cursors: where a page of a list ended, so that the next one begins there, whatever comes or goes meanwhile.

What is inside is nobody's business: the value of the column that the list is ordered by, and the key of the last row.
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

from apps.common.encoding import encode
from apps.common.errors import ApiError
from apps.common.pages import Column


def path(column: Column) -> str:
    """To what a list is ordered by."""
    return column.removeprefix("-") if isinstance(column, str) else str(column.expression.name)  # type: ignore[union-attr]


def after(row: Mapping[str, Any], column: Column, model: type[Model]) -> str | None:
    """The cursor behind `row`, in a list in the order of `column` and then of the keys; None where values change while
    somebody pages: what is within a document."""
    if isinstance(_field(model, path(column)), JSONField):
        return None
    inside = [_name(column), row[path(column)], row["id"]]
    return urlsafe_b64encode(encode(inside)).decode().rstrip("=")


def behind(cursor: str, column: Column, model: type[Model]) -> Q:
    """What follows it in a list in that order. 400 CURSOR_INVALID for what is no cursor, or that of another order."""
    try:
        name, value, key = orjson.loads(urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
        field = _field(model, path(column))
        if name != _name(column) or isinstance(field, JSONField) or not isinstance(key, str) or "\0" in f"{value}{key}":
            raise ValueError(name)
        if value is not None or not field.null:
            value = field.clean(value, None)
        if isinstance(value, datetime):
            value = value.astimezone(UTC)
    except (Error, ValueError, TypeError, OverflowError, ValidationError):
        raise ApiError(400, "CURSOR_INVALID", "cursor", cursor=cursor) from None
    return _behind(path(column), _descends(column), value, key, nulls=field.null)


def _behind(name: str, descends: bool, value: Any, key: str, *, nulls: bool) -> Q:
    """Nulls are last in both directions. The first condition says less than the second: an index can answer it."""
    if value is None:
        return Q(**{f"{name}__isnull": True}, pk__gt=key)
    beyond = "lt" if descends else "gt"
    further = Q(**{f"{name}__{beyond}": value}) | Q(**{name: value}, pk__gt=key)
    found = Q(**{f"{name}__{beyond}e": value}) & further
    return found | Q(**{f"{name}__isnull": True}) if nulls else found


def _name(column: Column) -> str:
    return f"-{path(column)}" if _descends(column) else path(column)


def _descends(column: Column) -> bool:
    return column.startswith("-") if isinstance(column, str) else column.descending


def _field(model: type[Model], name: str) -> "Field[Any, Any]":
    """At the end of a path; the document where it leads into one."""
    first, _, rest = name.partition(LOOKUP_SEP)
    field: Any = model._meta.get_field(first)
    return _field(field.related_model, rest) if rest and field.is_relation else field
