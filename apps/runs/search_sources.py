"""What indexes answer of the conditions of a query: statements that select the ids of the tasks that match.

A statement reads an index in its order, so that a limit bounds what is read.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from django.db.models import F, Q
from django.db.models import Value as Literal
from django.db.models.functions import Concat

from apps.accounts.models import Project, User
from apps.catalog.models import DatasetVersion, Model
from apps.clusters.models import Cluster
from apps.runs.search_conditions import (
    COST_COLUMNS,
    TRUE,
    Sql,
    escape_pattern,
    get_summary_column,
    is_postgresql,
    join_parts,
    match_age,
    match_number,
    match_pattern,
    match_time,
)
from apps.training.public import TaskKind
from fermi.runs.fields import Field, FieldGroup, FieldKind
from fermi.runs.query import Condition, Operator, Value, Word

MAX_RESOLVED = 200
"""Keys that a name may mean (versions of a dataset, …) for an index to be asked for them."""
VALUE_BEGINNING = 64
"""Characters of a parameter's value that are indexed (`apps.training.models.MAX_INDEXED_LENGTH`)."""


class Source(NamedTuple):
    """Statements that select the ids of all tasks that match, each from one index. `late`: it costs more than a few
    milliseconds where many match, so it is asked only where reading the newest tasks has not answered."""

    arms: tuple[Sql, ...]
    late: bool = False


ARCHIVED_TASKS = Source((Sql("SELECT task_id AS task FROM runs_run WHERE archived_at IS NOT NULL ORDER BY task_id"),))


def build_sources(conditions: Iterable[Condition | Word]) -> dict[tuple[int, ...], Source]:
    """Return what indexes answer of conditions that all hold: by the positions of the conditions that a source
    fulfils. Conditions on one parameter or curve are one range of its index."""
    ranges: dict[tuple[str, ...], list[tuple[int, Condition]]] = {}
    found: dict[tuple[int, ...], Source] = {}
    for position, condition in enumerate(conditions):
        if isinstance(condition, Condition) and (key := _get_range_key(condition)):
            ranges.setdefault(key, []).append((position, condition))
        elif source := _build_source(condition):
            found[position,] = source
    for members in ranges.values():
        found[tuple(position for position, _ in members)] = _build_range([one for _, one in members])
    return found


_ORDERED = (Operator.BELOW, Operator.AT_MOST, Operator.ABOVE, Operator.AT_LEAST)


def _get_range_key(condition: Condition) -> tuple[str, ...]:
    """Return which range of an index a condition bounds; empty for none."""
    field, operator = condition.field, condition.operator
    if operator is Operator.UNEQUAL or (len(condition.values) > 1 and field.kind is not FieldKind.TEXT):
        return ()
    is_any = operator is Operator.IS and condition.values[0].is_any
    match field.group:
        case FieldGroup.METRIC:
            return "metric", field.name, get_summary_column(field)
        case FieldGroup.COST:
            return "cost", field.name
        case FieldGroup.PARAMETER if operator in _ORDERED or is_any:
            return "parameter", field.name
    return ("created",) if field.name in ("created", "age") and not is_any else ()


def _build_range(conditions: Sequence[Condition]) -> Source:
    """Return the range of an index that all of the conditions bound."""
    field = conditions[0].field
    if field.group is FieldGroup.METRIC:
        column = get_summary_column(field)
        bounds = join_parts("AND", (match_number(column, one.operator, one.values) for one in conditions))
        return _make_source("training_metricsummary", "task_id", _prefix_name(bounds, field), column)
    if field.group is FieldGroup.COST:
        column = COST_COLUMNS[field.name]
        bounds = join_parts("AND", (match_number(column, one.operator, one.values) for one in conditions))
        return _make_source("runs_run", "task_id", bounds, column)
    if field.group is FieldGroup.PARAMETER:
        ordered = [match_number("number", one.operator, one.values) for one in conditions if one.operator in _ORDERED]
        bounds = join_parts("AND", ordered) if ordered else TRUE
        return _make_source("training_taskparameter", "task_id", _prefix_name(bounds, field), "number")
    bounds = join_parts("AND", (_build_created_range(one) for one in conditions))
    return _make_task_source(bounds)


def _build_created_range(condition: Condition) -> Sql:
    match_column = match_age if condition.field.name == "age" else match_time
    return match_column("created_at", condition.operator, condition.values)


def build_created_bounds(conditions: Iterable[Condition | Word]) -> list[Sql]:
    """Return bounds of `t.created_at` that the conditions mean, for reading tasks in that order."""
    found = []
    for one in conditions:
        if isinstance(one, Condition) and _get_range_key(one) == ("created",):
            bound = _build_created_range(one)
            found.append(Sql(bound.text.replace("created_at", "t.created_at"), bound.values))
    return found


def _prefix_name(bounds: Sql, field: Field) -> Sql:
    return Sql(f"name = %s AND ({bounds.text})", (field.name, *bounds.values))


def _make_source(table: str, key: str, where: Sql, *ordering: str, late: bool = False) -> Source:
    order = f" ORDER BY {', '.join(ordering)}" if ordering else ""
    return Source((Sql(f"SELECT {key} AS task FROM {table} WHERE {where.text}{order}", where.values),), late)


def _make_task_source(where: Sql) -> Source:
    whole = Sql(f"kind = %s AND ({where.text})", (TaskKind.TRAINING.value, *where.values))
    return _make_source("training_task", "id", whole, "created_at DESC", "id")


def _build_source(condition: Condition | Word) -> Source | None:
    if isinstance(condition, Word):
        return _make_pattern_source(f"%{escape_pattern(condition.text)}%", "name", "id") if condition.text else None
    field, operator, values = condition.field, condition.operator, condition.values
    if field.name == "name" and field.group is FieldGroup.TASK and len(values) == 1:
        if operator is Operator.CONTAINS and values[0].text:
            return _make_pattern_source(f"%{escape_pattern(values[0].text)}%", "name")
        if operator is Operator.IS and values[0].is_pattern and values[0].text.strip("*"):
            return _make_pattern_source(escape_pattern(values[0].text).replace("*", "%"), "name")
    if operator not in (Operator.IS, Operator.EQUAL):
        return None
    if operator is Operator.IS and any(value.is_pattern for value in values):
        return None
    arms = [arm for value in values for arm in _build_value_arms(field, value)]
    return Source(tuple(arms)) if arms and None not in arms else None  # type: ignore[arg-type]


def _make_pattern_source(pattern: str, *columns: str) -> Source | None:
    """Return what PostgreSQL's index of three-letter pieces answers."""
    if not is_postgresql() or len(pattern.strip("%")) < 3:
        return None
    arms = []
    for column in columns:
        match = match_pattern(column, pattern)
        arms.append(Sql(f"SELECT id AS task FROM training_task WHERE {match.text}", match.values))
    return Source(tuple(arms), late=True)


def _build_value_arms(field: Field, value: Value) -> list[Sql | None]:
    """Return what selects the tasks with a value; [None] where no index answers."""
    text = value.text
    if field.group is FieldGroup.PARAMETER:
        arms: list[Sql | None] = []
        if value.number is not None:
            where, ordering = Sql("name = %s AND number = %s", (field.name, value.number)), "number"
            arms += _make_source("training_taskparameter", "task_id", where, ordering).arms
        if value.number is None or text[-1:] in "kKMGT%":
            begin = f"SUBSTR(value, 1, {VALUE_BEGINNING})"
            where = Sql(f"name = %s AND {begin} = %s AND value = %s", (field.name, text[:VALUE_BEGINNING], text))
            if not is_postgresql():  # SQLite would put `value` into the expression, and use no index
                where = Sql(f"name = %s AND {begin} = %s AND +value = %s", where.values)
            arms += _make_source("training_taskparameter", "task_id", where, "id DESC").arms
        return arms
    if field.group is not FieldGroup.TASK:
        return [None]
    match field.name:
        case "id":
            return [Sql("SELECT id AS task FROM training_task WHERE id = %s", (text,))]
        case "name":
            return [Sql("SELECT id AS task FROM training_task WHERE name = %s ORDER BY name", (text,))]
        case "status":
            return [*_make_task_source(Sql("state = %s", (text,))).arms]
        case "framework":
            return [*_make_task_source(Sql("framework = %s", (text,))).arms]
        case "tag":
            return [*_make_source("runs_runtag", "task_id", Sql("name = %s", (text,)), "name", "id DESC").arms]
        case "sweep":
            named = "sweep_id IN (SELECT id FROM sweeps_sweep WHERE id = %s OR name = %s)"
            return [
                Sql(f"SELECT task_id AS task FROM sweeps_trial WHERE {named} AND task_id IS NOT NULL", (text, text))
            ]
        case "zone":
            return [Sql("SELECT task_id AS task FROM training_node WHERE zone = %s ORDER BY zone", (text,))]
        case "archived" if text == "yes":
            return [*ARCHIVED_TASKS.arms]
    if resolve := _RESOLVERS.get(field.name):
        column, keys = resolve(text)
        if len(keys) > MAX_RESOLVED:
            return [None]
        if column in ("owner_id", "project_id"):
            return [arm for key in keys for arm in _make_task_source(Sql(f"{column} = %s", (key,))).arms] or [_NOTHING]
        return [
            Sql(f"SELECT id AS task FROM training_task WHERE {column} = %s ORDER BY {column}", (key,)) for key in keys
        ] or [_NOTHING]
    return [None]


_NOTHING = Sql("SELECT id AS task FROM training_task WHERE id = ''")


def _resolve(column: str, rows: Any) -> tuple[str, list[Any]]:
    return column, list(rows.values_list("pk", flat=True).distinct()[: MAX_RESOLVED + 1])


def _resolve_data(text: str) -> tuple[str, list[Any]]:
    """Return the versions that a dataset's id, its name, or its name and that of a version mean."""
    named = Concat(F("dataset__name"), Literal(" "), F("name"))
    rows = DatasetVersion.objects.alias(full_name=named).filter(
        Q(dataset=text) | Q(dataset__name=text) | Q(full_name=text)
    )
    return _resolve("dataset_version_id", rows)


def _either(model: Any, text: str) -> Any:
    return model.objects.filter(name=text) | model.objects.filter(pk=text)


_RESOLVERS: Mapping[str, Callable[[str], tuple[str, list[Any]]]] = {
    "owner": lambda text: _resolve("owner_id", User.objects.filter(username=text)),
    "project": lambda text: _resolve("project_id", _either(Project, text)),
    "cluster": lambda text: _resolve("cluster_id", _either(Cluster, text)),
    "model": lambda text: _resolve("model_id", _either(Model, text)),
    "data": _resolve_data,
}


def resolve_equality(condition: Condition) -> tuple[str, Any] | None:
    """Return the column of tasks and the one key that a condition means, for columns by which the newest tasks are
    indexed; None for another condition."""
    field, values = condition.field, condition.values
    if condition.operator not in (Operator.IS, Operator.EQUAL) or len(values) != 1:
        return None
    if field.group is not FieldGroup.TASK or (condition.operator is Operator.IS and values[0].is_pattern):
        return None
    if field.name in ("status", "framework"):
        return ("state" if field.name == "status" else "framework"), values[0].text
    if field.name in ("owner", "project"):
        column, keys = _RESOLVERS[field.name](values[0].text)
        return (column, keys[0]) if len(keys) == 1 else None
    return None
