"""New rows by an INSERT that is made once for each model: Django makes it anew each time, which costs ten times what
the database asks for a row.

    insert(Event(task_id=…, at=now(), …))          # one statement, however many rows
    insert(*rows, ignore_conflicts=True)           # those that are there stay as they are

Values are what Django would store, defaults and `auto_now_add` included. What it leaves out: signals, which nobody of
ours listens to, and the primary key that the database gives, which is not asked for.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from operator import attrgetter
from types import NoneType
from typing import Any

import orjson
from django.db import DEFAULT_DB_ALIAS, connection
from django.db.models import (
    AutoField,
    BooleanField,
    CharField,
    DateTimeField,
    FloatField,
    ForeignKey,
    IntegerField,
    JSONField,
    Model,
    TextField,
)
from django.db.models.constants import OnConflict
from django.db.models.fields import NOT_PROVIDED

from apps.common.sql import Statement

KEPT = 64  # up to so many rows, their statement

Value = Callable[[Model], Any]


def insert(*rows: Model, ignore_conflicts: bool = False) -> None:
    """All of one model, and none of it stored yet."""
    if not rows:
        return
    made = _made(type(rows[0]), connection.vendor, ignore_conflicts)
    most = max(1, connection.ops.bulk_batch_size(made.fields, rows))
    for begin in range(0, len(rows), most):
        some = rows[begin : begin + most]
        made.of(len(some)).ask([value(row) for row in some for value in made.values])
    for row in rows:
        row._state.adding, row._state.db = False, DEFAULT_DB_ALIAS


@dataclass(frozen=True, slots=True)
class _Made:
    fields: list[Any]
    values: list[Value]
    before: str
    row: str
    after: str
    statements: dict[int, Statement] = field(default_factory=dict)

    def of(self, rows: int) -> Statement:
        if known := self.statements.get(rows):
            return known
        made = Statement(f"{self.before}{', '.join([self.row] * rows)}{self.after}")
        if rows <= KEPT:
            self.statements[rows] = made
        return made


@cache
def _made(model: type[Model], vendor: str, ignore_conflicts: bool) -> _Made:
    fields = [column for column in model._meta.concrete_fields if not isinstance(column, AutoField)]
    if odd := [column.name for column in fields if _is_odd(column, model)]:
        raise TypeError(f"{model.__name__} has columns that Django alone can fill: {', '.join(odd)}")
    operations = connection.ops
    conflict = OnConflict.IGNORE if ignore_conflicts else None
    columns = ", ".join(operations.quote_name(str(column.column)) for column in fields)
    begin, table = operations.insert_statement(on_conflict=conflict), operations.quote_name(model._meta.db_table)
    return _Made(
        fields,
        [_value(column) for column in fields],
        f"{begin} {table} ({columns}) VALUES ",
        f"({', '.join(['%s'] * len(fields))})",
        f" {operations.on_conflict_suffix_sql(fields, conflict, [], [])}".rstrip(),
    )


def _is_odd(field: Any, model: type[Model]) -> bool:
    """Its value is made by the database, or stands in another table."""
    return (
        field.generated
        or (field.db_default is not NOT_PROVIDED and field.default is NOT_PROVIDED)
        or hasattr(field, "get_placeholder")
        or field.model._meta.concrete_model is not model._meta.concrete_model
    )


def _value(field: Any) -> Value:
    """What Django stores of a row in this column, in a quicker way where it stores it as it is."""

    def stored(row: Model) -> Any:
        return field.get_db_prep_save(field.pre_save(row, add=True), connection=connection)

    target = _target(field)
    plain = next((kinds for known, kinds in _PLAIN.items() if isinstance(target, known)), ())
    of_djangos_own = type(target).__module__.startswith("django.db.models.")
    if not (plain and of_djangos_own) or getattr(field, "auto_now", False) or getattr(field, "auto_now_add", False):
        return stored
    found = attrgetter(field.attname)

    def quick(row: Model) -> Any:
        value = found(row)
        return value if type(value) in plain else stored(row)

    def json(row: Model) -> Any:
        value = found(row)
        if type(value) is not dict and type(value) is not list:
            return quick(row)
        try:
            return orjson.dumps(value, option=_STRICT).decode()
        except TypeError:  # of a key that is no text, a half of a surrogate pair, a number beyond 64 bits
            return stored(row)

    return json if isinstance(target, JSONField) and target.encoder is None and connection.vendor == "sqlite" else quick


_PLAIN: dict[Any, tuple[type, ...]] = {
    CharField: (str, NoneType),
    TextField: (str, NoneType),
    BooleanField: (bool, NoneType),
    IntegerField: (int, NoneType),
    FloatField: (float, NoneType),
    DateTimeField: (NoneType,),
    JSONField: (NoneType,),
}


_STRICT = orjson.OPT_PASSTHROUGH_DATETIME | orjson.OPT_PASSTHROUGH_DATACLASS
"""What Django refuses is refused."""


def _target(field: Any) -> Any:
    return _target(field.target_field) if isinstance(field, ForeignKey) else field
