"""The order of the table of runs, and cursors: where a page ended."""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, NamedTuple

import orjson

from apps.common.encoding import encode_json
from apps.common.errors import ApiError
from apps.runs.search_conditions import COST_COLUMNS, get_summary_column
from fermi.runs.fields import FIELDS, Field, FieldGroup, FieldKind


@dataclass(frozen=True, slots=True)
class Sort:
    """The order of a table. Tasks without a value come last, the newest first."""

    field: Field = FIELDS["created"]
    descending: bool = True

    def __str__(self) -> str:
        return f"{'-' if self.descending else ''}{self.field.key}"

    @property
    def is_by_creation(self) -> bool:
        """Return whether it is the order of creation; by age it is, the other way round."""
        return self.field.group is FieldGroup.TASK and self.field.name in ("created", "age")

    @property
    def newest_first(self) -> bool:
        """Return whether tasks without a value, or all in the order of creation, come with the newest first."""
        return not self.is_by_creation or self.descending is (self.field.name == "created")

    @property
    def is_by_value(self) -> bool:
        """Return whether an index has the values in their order."""
        return self.field.group is not FieldGroup.TASK

    def order(self, keys: list["Key"]) -> list["Key"]:
        """Return the tasks in this order, as `compare` has it."""
        valued, others = [key for key in keys if key.value is not None], [key for key in keys if key.value is None]
        others.sort(key=lambda key: key.id, reverse=not self.newest_first)
        others.sort(key=lambda key: key.created, reverse=self.newest_first)
        if self.is_by_value:
            valued.sort(key=lambda key: key.tie, reverse=not self.descending)
        else:
            valued.sort(key=lambda key: key.id)
            valued.sort(key=lambda key: key.created, reverse=True)
        valued.sort(key=lambda key: key.value, reverse=self.descending)
        return valued + others

    def compare(self, one: "Key", other: "Key") -> int:
        """Return a negative number if `one` comes first. The second column of an index descends where the first
        ascends."""
        if one.value is None or other.value is None:
            if (one.value is None) is not (other.value is None):
                return 1 if one.value is None else -1
            newest = self.newest_first
            return _compare(one.created, other.created, newest) or _compare(one.id, other.id, not newest)
        first = _compare(one.value, other.value, self.descending)
        if first or not self.is_by_value:
            return first or _compare(one.created, other.created, True) or _compare(one.id, other.id, False)
        return _compare(one.tie, other.tie, not self.descending)


NEWEST_FIRST = Sort()


class Key(NamedTuple):
    """The place of a task in the order. `value`: None: it has none, and its place is that of its creation. `tie`: what
    decides between equal values of an index."""

    id: str
    value: Any
    tie: Any
    created: datetime


def _compare(one: Any, other: Any, descending: bool) -> int:
    found = (one > other) - (one < other)
    return -found if descending else found


class ValueTable(NamedTuple):
    """Where the values of a field are in their order. `name`: of the rows; None: there is no such column."""

    table: str
    column: str
    tie: str
    name: str | None = None


def get_value_table(field: Field) -> ValueTable:
    """Return where the values of a parameter, a curve or a cost are."""
    if field.group is FieldGroup.PARAMETER:
        return ValueTable("training_taskparameter", "number", "id", field.name)
    if field.group is FieldGroup.METRIC:
        return ValueTable("training_metricsummary", get_summary_column(field), "id", field.name)
    return ValueTable("runs_run", COST_COLUMNS[field.name], "task_id")


def make_cursor(key: Key, sort: Sort) -> str:
    """Return the cursor of the page behind a task, opaque to clients."""
    inside = [str(sort), key.value, key.tie, key.created.isoformat(), key.id]
    return urlsafe_b64encode(encode_json(inside)).decode().rstrip("=")


def read_cursor(cursor: str, sort: Sort) -> Key:
    """Return where the page begins. Raises ApiError 400 CURSOR_INVALID for anything else than a cursor of this
    order."""
    try:
        name, value, tie, created, key = orjson.loads(urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
        moment = datetime.fromisoformat(created)
        if name != str(sort) or not isinstance(key, str) or "\0" in f"{key}{value}{tie}" or moment.tzinfo is None:
            raise ValueError(name)
        _check_value(value, tie, sort)
        return Key(key, value, tie, moment.astimezone(UTC))
    except (Error, ValueError, TypeError, OverflowError):
        raise ApiError(400, "CURSOR_INVALID", "cursor", cursor=cursor) from None


def _check_value(value: Any, tie: Any, sort: Sort) -> None:
    """Raise ValueError or TypeError for a value that no task has in this order."""
    if value is None:
        return
    is_text = sort.field.kind in (FieldKind.TEXT, FieldKind.CHOICE)
    if sort.is_by_creation or isinstance(value, bool) or not isinstance(value, str if is_text else int | float):
        raise TypeError(value)
    if sort.is_by_value:
        float(value)
        kind = str if get_value_table(sort.field).tie == "task_id" else int
        if not isinstance(tie, kind) or (isinstance(tie, int) and not -(2**63) <= tie < 2**63):
            raise TypeError(tie)
