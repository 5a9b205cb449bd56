"""The fields of a run: what queries compare, columns show, and tables are sorted and grouped by.

A field is a property of the task (`status`, `created`, …), a parameter (`param.lr`; also any bare name that is no
property), or what a curve comes to (`metric.val_loss`, its last value; `.last`, `.min`, `.max`, `.best`).
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from fermi.metrics.ratings import is_more_better

MAX_FIELD_LENGTH = 220
"""Characters of a field with its prefix and suffix; names of parameters and metrics have at most 200."""

STATUSES = ("initializing", "queued", "starting", "running", "stopping", "succeeded", "failed", "stopped")
PRIORITIES = ("low", "normal", "high", "urgent")


class FieldKind(StrEnum):
    """What the values of a field are, and so which operators it has."""

    TEXT = "text"
    NUMBER = "number"
    TIME = "time"
    DURATION = "duration"
    CHOICE = "choice"
    MIXED = "mixed"
    """A parameter: its values may be numbers or texts."""


class FieldGroup(StrEnum):
    """Where the values of a field come from."""

    TASK = "task"
    PARAMETER = "parameter"
    METRIC = "metric"
    COST = "cost"


class Statistic(StrEnum):
    """Which value of a curve. `BEST` is the lowest or the highest, by `fermi.metrics.ratings.is_more_better`."""

    LAST = "last"
    MIN = "min"
    MAX = "max"
    BEST = "best"


@dataclass(frozen=True, slots=True)
class Field:
    """A field as queries name it. `name`: of the parameter or the curve, or of the property of the task. `choices`:
    its only values, for FieldKind.CHOICE. `sortable`: a table can be sorted by it."""

    name: str
    kind: FieldKind
    group: FieldGroup = FieldGroup.TASK
    statistic: Statistic | None = None
    choices: tuple[str, ...] = ()
    sortable: bool = True
    column: bool = True

    def __str__(self) -> str:
        """Return the field as a query writes it."""
        match self.group:
            case FieldGroup.PARAMETER:
                return f"param.{quote_name(self.name)}"
            case FieldGroup.METRIC:
                return f"metric.{quote_name(self.name)}.{self.statistic}"
        return self.name

    @property
    def key(self) -> str:
        """Return the field as columns and values name it: as a query does, without quotes."""
        match self.group:
            case FieldGroup.PARAMETER:
                return f"param.{self.name}"
            case FieldGroup.METRIC:
                return f"metric.{self.name}.{self.statistic}"
        return self.name


_TEXT, _NUMBER, _TIME = FieldKind.TEXT, FieldKind.NUMBER, FieldKind.TIME
FIELDS: Mapping[str, Field] = {
    field.name: field
    for field in (
        Field("id", _TEXT),
        Field("name", _TEXT),
        Field("status", FieldKind.CHOICE, choices=STATUSES),
        Field("reason", _TEXT),
        Field("framework", _TEXT),
        Field("project", _TEXT),
        Field("owner", _TEXT),
        Field("priority", FieldKind.CHOICE, choices=PRIORITIES),
        Field("nodes", _NUMBER),
        Field("gpus", _NUMBER),
        Field("created", _TIME),
        Field("started", _TIME),
        Field("ended", _TIME),
        Field("age", FieldKind.DURATION),
        Field("duration", FieldKind.DURATION),
        Field("environment", _TEXT, sortable=False),
        Field("zone", _TEXT, sortable=False),
        Field("gpuType", _TEXT, sortable=False),
        Field("cluster", _TEXT),
        Field("tag", _TEXT, sortable=False),
        Field("note", _TEXT, sortable=False),
        Field("archived", FieldKind.CHOICE, choices=("yes", "no"), sortable=False),
        Field("code", _TEXT, sortable=False),
        Field("data", _TEXT),
        Field("model", _TEXT),
        Field("sweep", _TEXT, sortable=False),
        Field("cost", _NUMBER, FieldGroup.COST),
        Field("gpuHours", _NUMBER, FieldGroup.COST),
        Field("goodput", _NUMBER, FieldGroup.COST),
        Field("step", _NUMBER),
        Field("loss", _NUMBER),
        Field("attempts", _NUMBER),
    )
}
"""The properties of a task, by name."""
_HIGHER_IS_BETTER = {"loss": False, "cost": False, "gpuHours": False, "goodput": True}
_BY_LOWER_CASE = {name.lower(): field for name, field in FIELDS.items()}

_PARAMETER_PREFIXES = ("param.", "parameter.")
_METRIC_PREFIX = "metric."
_PLAIN_NAME = re.compile(r'[^\s"():,=<>!~\\-][^\s"():,=<>!~\\]*')
_MAX_NAME_LENGTH = 200


def resolve_field(name: str) -> Field | None:
    """Return the field that a query means by a name without quotes; None where a prefix has no name behind it, or the
    name is longer than that of any parameter. The case of a property's name does not count."""
    if not name or len(name) > MAX_FIELD_LENGTH:
        return None
    if found := _BY_LOWER_CASE.get(name.lower()):
        return found
    for prefix in _PARAMETER_PREFIXES:
        if name.startswith(prefix):
            return _make_parameter(name.removeprefix(prefix))
    if name.startswith(_METRIC_PREFIX):
        return _make_metric(name.removeprefix(_METRIC_PREFIX))
    return _make_parameter(name)


def _make_parameter(name: str) -> Field | None:
    valid = 0 < len(name) <= _MAX_NAME_LENGTH
    return Field(name, FieldKind.MIXED, FieldGroup.PARAMETER) if valid else None


def _make_metric(name: str) -> Field | None:
    curve, dot, last = name.rpartition(".")
    if dot and curve and last in list(Statistic):
        statistic = Statistic(last)
    else:
        curve, statistic = name, Statistic.LAST
    valid = 0 < len(curve) <= _MAX_NAME_LENGTH
    return Field(curve, FieldKind.NUMBER, FieldGroup.METRIC, statistic) if valid else None


def quote_name(name: str) -> str:
    """Return a name as a query writes it: in quotes where it has characters that mean something else there."""
    return name if _PLAIN_NAME.fullmatch(name) else quote_text(name)


def quote_text(text: str) -> str:
    """Return a text in quotes."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def is_higher_better(field: Field) -> bool | None:
    """Return whether a higher value of the field is the better one; None where neither is. Metrics go by their name."""
    if field.group is FieldGroup.METRIC:
        return is_more_better(field.name)
    return _HIGHER_IS_BETTER.get(field.name) if field.group is not FieldGroup.PARAMETER else None
