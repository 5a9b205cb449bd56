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

import sqlite3
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from itertools import cycle, islice
from typing import Any, Generic, TypeVar

import orjson
from django.db import DEFAULT_DB_ALIAS, connection
from django.db.models import JSONField, Model, QuerySet
from django.db.models.base import ModelState
from django.db.models.query import get_related_populators
from django.utils.dateparse import parse_datetime

from apps.common.sql import Statement

SHAPES = 256  # of a query, kept

M = TypeVar("M", bound=Model)

Converter = Callable[[Sequence[Any]], Sequence[Any]]
"""Of a whole column: what is called for each value by itself takes a third of a page's time."""


@dataclass(frozen=True, slots=True)
class _Made:
    statement: Statement
    counting: Statement
    values: tuple[Any, ...]
    slots: tuple[tuple[int, str], ...]  # at which places of `values` which parameters go
    converters: tuple[tuple[int, Converter], ...]
    shaped: Callable[[Sequence[Any]], Any]

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
        rows = made.statement.ask(made.filled(parameters))
        if made.converters and rows:
            columns: list[Sequence[Any]] = list(zip(*rows, strict=True))
            for index, convert in made.converters:
                columns[index] = convert(columns[index])
            rows = list(zip(*columns, strict=True))
        return list(map(made.shaped, rows))

    def one(self, *shape: Hashable, **parameters: str | int) -> Any:
        """The first of them; None where there is none."""
        return next(iter(self.ask(*shape, **parameters)), None)

    def count(self, *shape: Hashable, **parameters: str | int) -> int:
        made = self._made(shape, *((name, type(value)) for name, value in parameters.items()))
        return int(made.counting.ask(made.filled(parameters))[0][0])

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
        counting = Statement(f"SELECT COUNT(*) FROM ({sql}) AS counted")
        return _Made(Statement(sql), counting, tuple(values), slots, _converters(compiler), shaped)


def keys(values: Iterable[str]) -> dict[str, str]:
    """As parameters: `lambda **among: Task.objects.filter(pk__in=list(among.values()))`. Filled up to a power of two
    by beginning again, so that few shapes are compiled for any number of them. Not up to eight: from nine values on
    PostgreSQL hashes them, and looks at a hundred thousand rows in half the time."""
    each = list(dict.fromkeys(values))
    room = 1 << (len(each) - 1).bit_length() if each else 0
    room = 16 if room == 8 else room
    return {f"key{index}": value for index, value in enumerate(islice(cycle(each), room))}


def _stand_in(index: int, kind: type) -> str | int:
    """Nothing that is stored looks like it."""
    if kind is int:
        return 2**62 - 1 - index
    if issubclass(kind, str):
        return f"\N{SYMBOL FOR NULL}parameter {index}\N{SYMBOL FOR NULL}"
    raise TypeError(f"{kind.__name__} is neither a text nor a whole number")


def _hashed(value: Any) -> Any:
    return value if isinstance(value, str | int) else None


def _dictionary(query: Any) -> Callable[[Sequence[Any]], dict[str, Any]]:
    """In the order of the columns, as `ValuesIterable` has them (django/db/models/query.py)."""
    names = tuple(query.selected or (*query.extra_select, *query.values_select, *query.annotation_select))
    return lambda values: dict(zip(names, values, strict=True))


def _instance(compiler: Any) -> Callable[[Sequence[Any]], Any]:
    """As `ModelIterable` has them, for rows that bear no annotations."""
    kind, select = compiler.klass_info, compiler.select
    begin, end = kind["select_fields"][0], kind["select_fields"][-1] + 1
    names = [column.target.attname for column, _, _ in select[begin:end]]
    others = get_related_populators(kind, select, DEFAULT_DB_ALIAS)  # type: ignore[call-arg]
    instances = Instances(kind["model"])
    for other in others:
        _quickly(other)

    def made(values: Sequence[Any]) -> Any:
        found = instances.from_db(DEFAULT_DB_ALIAS, names, values[begin:end])
        for other in others:
            other.populate(values, found)
        return found

    return made


def _quickly(populator: Any) -> None:
    populator.model_cls = Instances(populator.model_cls)
    for other in populator.related_populators:
        _quickly(other)


class Instances(Generic[M]):
    """`Model.from_db` without the signals of `__init__` and its look at each field: a row has a value for each name.
    Other fields are deferred."""

    def __init__(self, model: type[M]) -> None:
        self._model = model

    def only(self, rows: QuerySet[M], *names: str) -> list[M]:
        """`rows` with these columns alone: `QuerySet.only` in a fifth of its time."""
        return [self.from_db(DEFAULT_DB_ALIAS, names, values) for values in rows.values_list(*names)]

    def from_db(self, alias: str, names: Sequence[str], values: Sequence[Any]) -> M:
        made = self._model.__new__(self._model)
        made._state = state = ModelState()
        state.adding, state.db = False, alias
        made.__dict__.update(zip(names, values, strict=True))
        return made


def _converters(compiler: Any) -> tuple[tuple[int, Converter], ...]:
    found = compiler.get_converters([column for column, _, _ in compiler.select])
    return tuple((index, _converter(steps, column)) for index, (steps, column) in found.items())


def _converter(steps: list[Callable[..., Any]], column: Any) -> Converter:
    """What Django does with a column's values, in a quicker way where there is one."""

    def converted(value: Any) -> Any:
        for step in steps:
            value = step(value, column, connection)
        return value

    kind = [getattr(step, "__name__", "") for step in steps]
    if kind == ["convert_datetimefield_value"]:
        return _moments
    if kind == ["convert_booleanfield_value"]:
        return lambda values: [None if value is None else bool(value) for value in values]
    field = column.output_field
    if kind == ["from_db_value"] and isinstance(field, JSONField) and field.decoder is None:
        return lambda values: [
            orjson.loads(value) if isinstance(value, str) else None if value is None else converted(value)
            for value in values
        ]
    return lambda values: [None if value is None else converted(value) for value in values]


def _moments(values: Sequence[Any]) -> Sequence[Any]:
    """SQLite keeps times as texts in UTC."""
    return [None if value is None else _moment(value) for value in values]


def _moment(value: Any) -> datetime:
    found = value if isinstance(value, datetime) else datetime.fromisoformat(value)
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def _from_sqlite(value: bytes) -> datetime | None:
    """A column of times is read by the driver; Django's own way to do so takes three times as long, and a page has
    hundreds of them."""
    text = value.decode()
    try:
        return datetime.fromisoformat(f"{text}+00:00")
    except ValueError:
        return parse_datetime(text)


if connection.vendor == "sqlite":
    sqlite3.register_converter("datetime", _from_sqlite)  # after Django's, which came with the connection
