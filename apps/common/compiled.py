"""Queries of which Django makes the SQL once: to make it costs ten times what it costs to ask a small one.

    _NAMES = Compiled(
        lambda order, /, project: Task.objects.filter(project=project).order_by(order).values("id", "name")
    )
    rows = _NAMES.ask("-created_at", project="default")       # a list of dictionaries, as `.values()` gives them
    how_many = _NAMES.count("-created_at", project="default")

A query without `.values()` gives instances of its model, with what `select_related` names. What stands before the slash
shapes the query, and each shape has SQL of its own. What stands behind it are texts and whole numbers that the SQL has
places for; the query may compare them and do nothing else with them, since it is made with others in their stead.
"""

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

import orjson
from django.db import DEFAULT_DB_ALIAS, connection
from django.db.models import JSONField, QuerySet
from django.db.models.query import get_related_populators

SHAPES = 256  # of a query, kept

Converter = Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class _Made:
    sql: str
    values: tuple[Any, ...]
    slots: tuple[tuple[int, str], ...]  # at which places of `values` which parameters go
    converters: tuple[tuple[int, Converter], ...]
    shaped: Callable[[list[Any]], Any]

    def filled(self, parameters: dict[str, Any]) -> list[Any]:
        values = list(self.values)
        for index, name in self.slots:
            values[index] = parameters[name]
        return values


class Compiled:
    def __init__(self, build: Callable[..., QuerySet[Any, Any]]) -> None:
        self._build = build
        self._made = lru_cache(SHAPES)(self._make)

    def ask(self, *shape: Hashable, **parameters: str | int) -> list[Any]:
        made = self._made(shape, *((name, type(value)) for name, value in parameters.items()))
        with connection.cursor() as cursor:
            cursor.execute(made.sql, made.filled(parameters))
            rows = cursor.fetchall()
        converters, shaped = made.converters, made.shaped
        found = []
        for row in rows:
            values = list(row)
            for index, convert in converters:
                if (value := values[index]) is not None:
                    values[index] = convert(value)
            found.append(shaped(values))
        return found

    def one(self, *shape: Hashable, **parameters: str | int) -> Any:
        """The first of them; None where there is none."""
        return next(iter(self.ask(*shape, **parameters)), None)

    def count(self, *shape: Hashable, **parameters: str | int) -> int:
        made = self._made(shape, *((name, type(value)) for name, value in parameters.items()))
        with connection.cursor() as cursor:
            cursor.execute(f"SELECT COUNT(*) FROM ({made.sql}) AS counted", made.filled(parameters))
            return int(cursor.fetchone()[0])

    def _make(self, shape: tuple[Hashable, ...], *kinds: tuple[str, type]) -> _Made:
        stand_ins = {name: _stand_in(index, kind) for index, (name, kind) in enumerate(kinds)}
        rows = self._build(*shape, **stand_ins)
        compiler = rows.query.get_compiler(connection=connection)
        sql, values = compiler.as_sql()
        named = {value: name for name, value in stand_ins.items()}
        slots = tuple((index, named[value]) for index, value in enumerate(values) if _hashed(value) in named)
        if missing := stand_ins.keys() - {name for _, name in slots}:
            raise ValueError(f"the query does not compare {', '.join(sorted(missing))} as it is")
        plain = rows._fields is None  # type: ignore[attr-defined]
        shaped = _instance(compiler) if plain else _dictionary(rows.query)
        return _Made(sql, tuple(values), slots, _converters(compiler), shaped)


def keys(values: Iterable[str]) -> dict[str, str]:
    """As parameters, each once: `lambda **among: Task.objects.filter(pk__in=list(among.values()))`."""
    return {f"key{index}": value for index, value in enumerate(dict.fromkeys(values))}


def _stand_in(index: int, kind: type) -> str | int:
    """Nothing that is stored looks like it."""
    if kind is int:
        return 2**62 - 1 - index
    if issubclass(kind, str):
        return f"\N{SYMBOL FOR NULL}parameter {index}\N{SYMBOL FOR NULL}"
    raise TypeError(f"{kind.__name__} is neither a text nor a whole number")


def _hashed(value: Any) -> Any:
    return value if isinstance(value, str | int) else None


def _dictionary(query: Any) -> Callable[[list[Any]], dict[str, Any]]:
    """In the order of the columns, as `ValuesIterable` has them (django/db/models/query.py)."""
    names = tuple(query.selected or (*query.extra_select, *query.values_select, *query.annotation_select))
    return lambda values: dict(zip(names, values, strict=True))


def _instance(compiler: Any) -> Callable[[list[Any]], Any]:
    """As `ModelIterable` has them, for rows that bear no annotations."""
    kind, select = compiler.klass_info, compiler.select
    begin, end = kind["select_fields"][0], kind["select_fields"][-1] + 1
    names = [column.target.attname for column, _, _ in select[begin:end]]
    others = get_related_populators(kind, select, DEFAULT_DB_ALIAS)  # type: ignore[call-arg]

    def made(values: list[Any]) -> Any:
        found = kind["model"].from_db(DEFAULT_DB_ALIAS, names, values[begin:end])
        for other in others:
            other.populate(values, found)
        return found

    return made


def _converters(compiler: Any) -> tuple[tuple[int, Converter], ...]:
    found = compiler.get_converters([column for column, _, _ in compiler.select])
    return tuple((index, _converter(steps, column)) for index, (steps, column) in found.items())


def _converter(steps: list[Callable[..., Any]], column: Any) -> Converter:
    """What Django does with a column's values, in a quicker way where there is one."""

    def convert(value: Any) -> Any:
        for step in steps:
            value = step(value, column, connection)
        return value

    kind = [getattr(step, "__name__", "") for step in steps]
    if kind == ["convert_datetimefield_value"]:
        return _moment
    if kind == ["convert_booleanfield_value"]:
        return bool
    field = column.output_field
    if kind == ["from_db_value"] and isinstance(field, JSONField) and field.decoder is None:
        return lambda value: orjson.loads(value) if isinstance(value, str) else convert(value)
    return convert


def _moment(value: Any) -> datetime:
    """SQLite keeps times as texts in UTC."""
    found = value if isinstance(value, datetime) else datetime.fromisoformat(value)
    return found if found.tzinfo else found.replace(tzinfo=UTC)
