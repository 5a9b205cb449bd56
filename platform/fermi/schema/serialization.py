"""Frozen values as JSON in the database, read again by any release.

A row may be older or newer than the code that reads it: rows outlive upgrades, and during one two releases run side by
side. So a key that is not known is passed over, one that is missing has its default, and a value of another type counts
as missing. Reading never raises because of what a row holds.

`VERSION` goes up when a key changes its meaning; `load` then turns the older meaning into the newer one, by the version
that the row says (none: 0). Adding a key needs nothing but a default. `tests/stored` has what each release wrote.
"""

import logging
from collections.abc import Mapping
from dataclasses import MISSING, fields
from functools import cache
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

import msgspec

VERSION = 1

Kind = TypeVar("Kind")

log = logging.getLogger(__name__)


def dump(value: Any) -> dict[str, Any]:
    return {"version": VERSION, **msgspec.to_builtins(value)}


def load(kind: type[Kind], data: Mapping[str, Any]) -> Kind:
    """Return `data` as `kind`, a dataclass. A field that cannot be read has its default. Raises only where `data` is no
    mapping."""
    try:
        return msgspec.convert(data, kind)
    except msgspec.ValidationError as error:
        log.warning("a stored %s is not of this release: %s", kind.__name__, error)
        return _load_fields(kind, data)


def _load_fields(kind: type[Kind], data: Mapping[str, Any]) -> Kind:
    """Convert each field by itself, also within lists and objects."""
    hints, made = _get_type_hints(kind), {}  # type: ignore[arg-type]
    for field in fields(kind):  # type: ignore[arg-type]
        if field.name in data:
            try:
                made[field.name] = _convert_value(hints[field.name], data[field.name])
                continue
            except (msgspec.ValidationError, TypeError):
                pass
        if field.default is MISSING and field.default_factory is MISSING:
            made[field.name] = _empty_value(hints[field.name])
    return kind(**made)


def _convert_value(hint: Any, value: Any) -> Any:
    """Return the value as the type hint asks. Raises msgspec.ValidationError."""
    try:
        return msgspec.convert(value, hint)
    except msgspec.ValidationError:
        if isinstance(hint, type) and hasattr(hint, "__dataclass_fields__") and isinstance(value, Mapping):
            return _load_fields(hint, value)
        inner = get_args(hint)
        if get_origin(hint) is tuple and isinstance(value, list):
            return tuple(_convert_value(inner[0], one) for one in value)
        if type(None) in inner and isinstance(value, Mapping):
            return _convert_value(inner[0], value)
        raise


def _empty_value(hint: Any) -> Any:
    """Return an empty value of the hinted type, for a field that has no default."""
    return (get_origin(hint) or hint)() if (get_origin(hint) or hint) in (str, int, float, tuple, list, dict) else None


@cache
def _get_type_hints(kind: Any) -> dict[str, Any]:
    return get_type_hints(kind)
