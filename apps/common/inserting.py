"""New rows by an INSERT that is made once for each model: Django makes it anew each time, which costs ten times what
the database asks for a row.

    insert(Event(task_id=…, at=now(), …))          # one statement, however many rows
    insert(*rows, ignore_conflicts=True)           # those that are there stay as they are

Values are what Django would store, defaults and `auto_now_add` included. What it leaves out: signals, which nobody of
ours listens to, and the primary key that the database gives, which is not asked for.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from operator import attrgetter
from types import NoneType
from typing import Any

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

Value = Callable[[Model], Any]


def insert(*rows: Model, ignore_conflicts: bool = False) -> None:
    """All of one model, and none of it stored yet."""
    if not rows:
        return
    made = _made(type(rows[0]), connection.vendor, ignore_conflicts)
    most = max(1, connection.ops.bulk_batch_size(made.fields, rows))
    with connection.cursor() as cursor:
        for begin in range(0, len(rows), most):
            some = rows[begin : begin + most]
            values = [value(row) for row in some for value in made.values]
            cursor.execute(f"{made.before}{', '.join([made.row] * len(some))}{made.after}", values)
    for row in rows:
        row._state.adding, row._state.db = False, DEFAULT_DB_ALIAS


@dataclass(frozen=True, slots=True)
class _Made:
    fields: list[Any]
    values: list[Value]
    before: str
    row: str
    after: str


@cache
def _made(model: type[Model], vendor: str, ignore_conflicts: bool) -> _Made:
    fields = [field for field in model._meta.concrete_fields if not isinstance(field, AutoField)]
    if odd := [field.name for field in fields if _is_odd(field, model)]:
        raise TypeError(f"{model.__name__} has columns that Django alone can fill: {', '.join(odd)}")
    operations = connection.ops
    conflict = OnConflict.IGNORE if ignore_conflicts else None
    columns = ", ".join(operations.quote_name(str(field.column)) for field in fields)
    begin, table = operations.insert_statement(on_conflict=conflict), operations.quote_name(model._meta.db_table)
    return _Made(
        fields,
        [_value(field) for field in fields],
        f"{begin} {table} ({columns}) VALUES ",
        f"({', '.join(['%s'] * len(fields))})",
        f" {operations.on_conflict_suffix_sql(fields, conflict, [], [])}".rstrip(),
    )


def _is_odd(field: Any, model: type[Model]) -> bool:
    """Its value is made by the database, or stands in another table."""
    return (
        field.generated
        or field.db_default is not NOT_PROVIDED
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

    return quick


_PLAIN: dict[Any, tuple[type, ...]] = {
    CharField: (str, NoneType),
    TextField: (str, NoneType),
    BooleanField: (bool, NoneType),
    IntegerField: (int, NoneType),
    FloatField: (float, NoneType),
    DateTimeField: (NoneType,),
    JSONField: (NoneType,),
}


def _target(field: Any) -> Any:
    return _target(field.target_field) if isinstance(field, ForeignKey) else field
