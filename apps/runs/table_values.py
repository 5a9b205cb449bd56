"""The values of tasks in the columns of the table of runs, a few queries for any number of columns."""

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import Any

from django.db import connection

from apps.common.clock import now
from apps.common.sql import read_moment
from apps.runs.search_conditions import (
    COST_COLUMNS,
    NUMBER_COLUMNS,
    TIME_COLUMNS,
    Sql,
    get_summary_column,
    match_keys,
    measure_duration,
    read_code,
    read_progress,
)
from fermi.runs.fields import Field, FieldGroup
from fermi.scheduler.snapshot import classify_priority

CellValue = str | float | int | datetime | None
Values = dict[str, CellValue]

MAX_IN_CELL = 20
"""Names of environments, tags and the like in one cell."""
_VERSION = "catalog_datasetversion v JOIN catalog_dataset d ON d.id = v.dataset_id WHERE v.id = t.dataset_version_id"
_TASK_COLUMNS: dict[str, str] = {
    "id": "t.id",
    "name": "t.name",
    "status": "t.state",
    "reason": "NULLIF(t.reason, '')",
    "framework": "t.framework",
    "project": "t.project_id",
    "owner": "(SELECT u.username FROM accounts_user u WHERE u.id = t.owner_id)",
    "priority": "t.priority",
    "cluster": "(SELECT c.name FROM clusters_cluster c WHERE c.id = t.cluster_id)",
    "model": "(SELECT m.name FROM catalog_model m WHERE m.id = t.model_id)",
    "data": f"(SELECT d.name || ' ' || v.name FROM {_VERSION})",
    "sweep": "(SELECT x.sweep_id FROM sweeps_trial x WHERE x.task_id = t.id)",
    **NUMBER_COLUMNS,
    **TIME_COLUMNS,
    "age": "t.created_at",
}
_LISTS = {
    "environment": ("training_node", "name"),
    "zone": ("training_node", "zone"),
    "gpuType": ("training_node", "gpu_type"),
    "tag": ("runs_runtag", "name"),
}


def load_values(ids: Sequence[str], fields: Iterable[Field]) -> dict[str, Values]:
    """Return the values of the tasks by their ids, each by the key of its field; what a task has not is left out."""
    found: dict[str, Values] = {key: {} for key in ids}
    if not ids:
        return found
    by_group: dict[FieldGroup, list[Field]] = {}
    for field in fields:
        by_group.setdefault(field.group, []).append(field)
    loaders = {
        FieldGroup.TASK: _load_properties,
        FieldGroup.PARAMETER: _load_parameters,
        FieldGroup.METRIC: _load_summaries,
        FieldGroup.COST: _load_costs,
    }
    for group, members in by_group.items():
        loaders[group](ids, members, found)
    return found


def load_sort_values(ids: Sequence[str], field: Field) -> dict[str, tuple[str | float | None, Any]]:
    """Return the values by which tasks are sorted, by id, each with what decides between equal ones: in the order of
    the index that has these values. Times are in seconds."""
    match field.group:
        case FieldGroup.PARAMETER:
            return _load_sorted("training_taskparameter", "number", "id", ids, field.name)
        case FieldGroup.METRIC:
            return _load_sorted("training_metricsummary", get_summary_column(field), "id", ids, field.name)
        case FieldGroup.COST:
            return _load_sorted("runs_run", COST_COLUMNS[field.name], "task_id", ids)
    values = load_values(ids, [field])
    return {key: (_make_sortable(row.get(field.key)), None) for key, row in values.items()}


def _make_sortable(value: CellValue) -> str | float | None:
    return value.timestamp() if isinstance(value, datetime) else value


def _load_sorted(table: str, column: str, tie: str, ids: Sequence[str], name: str | None = None) -> dict[str, Any]:
    keys = match_keys("v.task_id", ids)
    named = Sql(" AND v.name = %s", (name,)) if name is not None else Sql("")
    rows = _fetch(
        Sql(
            f"SELECT v.task_id, v.{column}, v.{tie} FROM {table} v "
            f"WHERE {keys.text}{named.text} AND v.{column} IS NOT NULL",
            (*keys.values, *named.values),
        )
    )
    return {task: (value, number) for task, value, number in rows}


def _fetch(statement: Sql) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(statement.text, statement.values)
        return cursor.fetchall()


def _load_properties(ids: Sequence[str], fields: Sequence[Field], found: dict[str, Values]) -> None:
    expressions = [(field.name, _build_expression(field.name)) for field in fields]
    known = [(name, expression) for name, expression in expressions if expression]
    if known:
        keys = match_keys("t.id", ids)
        columns = ", ".join(expression.text for _, expression in known)
        values = tuple(value for _, expression in known for value in expression.values)
        rows = _fetch(Sql(f"SELECT t.id, {columns} FROM training_task t WHERE {keys.text}", (*values, *keys.values)))
        for task, *cells in rows:
            for (name, _), cell in zip(known, cells, strict=True):
                if cell is not None:
                    found[task][name] = _READERS.get(name, _keep)(cell)
    for field in fields:
        if source := _LISTS.get(field.name):
            _load_lists(ids, field.name, *source, found)
        elif field.name in ("note", "archived"):
            _load_record(ids, field.name, found)


def _build_expression(name: str) -> Sql | None:
    if column := _TASK_COLUMNS.get(name):
        return Sql(column)
    match name:
        case "duration":
            return measure_duration()
        case "step" | "loss":
            return Sql(read_progress(name))
        case "code":
            return Sql(read_code())
    return None


def _keep(value: Any) -> Any:
    return value


_READERS: dict[str, Callable[[Any], CellValue]] = {
    "priority": lambda value: classify_priority(value).name.lower(),
    "created": read_moment,
    "started": read_moment,
    "ended": read_moment,
    "age": lambda value: (now() - read_moment(value)).total_seconds(),
    "duration": float,
}


def _load_lists(ids: Sequence[str], name: str, table: str, column: str, found: dict[str, Values]) -> None:
    keys = match_keys("task_id", ids)
    rows = _fetch(
        Sql(
            f"SELECT DISTINCT task_id, {column} FROM {table} WHERE {keys.text} AND {column} <> '' ORDER BY 1, 2",
            keys.values,
        )
    )
    members: dict[str, list[str]] = {}
    for task, member in rows:
        members.setdefault(task, []).append(member)
    for task, each in members.items():
        found[task][name] = ", ".join(each[:MAX_IN_CELL]) + (", …" if len(each) > MAX_IN_CELL else "")


def _load_record(ids: Sequence[str], name: str, found: dict[str, Values]) -> None:
    keys = match_keys("task_id", ids)
    column = "SUBSTR(note, 1, 200)" if name == "note" else "CASE WHEN archived_at IS NOT NULL THEN 'yes' ELSE '' END"
    for task, cell in _fetch(Sql(f"SELECT task_id, {column} FROM runs_run WHERE {keys.text}", keys.values)):
        if cell:
            found[task][name] = cell
    if name == "archived":
        for values in found.values():
            values.setdefault(name, "no")


def _load_named(table: str, columns: str, ids: Sequence[str], fields: Sequence[Field]) -> list[tuple[Any, ...]]:
    keys = match_keys("v.task_id", ids)
    names = sorted({field.name for field in fields})
    named = ", ".join(["%s"] * len(names))
    return _fetch(
        Sql(
            f"SELECT v.task_id, v.name, {columns} FROM {table} v WHERE {keys.text} AND v.name IN ({named})",
            (*keys.values, *names),
        )
    )


def _load_parameters(ids: Sequence[str], fields: Sequence[Field], found: dict[str, Values]) -> None:
    for task, name, number, value in _load_named("training_taskparameter", "v.number, v.value", ids, fields):
        found[task][f"param.{name}"] = value if number is None else number


def _load_summaries(ids: Sequence[str], fields: Sequence[Field], found: dict[str, Values]) -> None:
    by_name: dict[str, list[tuple[str, int]]] = {}
    for field in fields:
        position = ("last", "low", "high").index(get_summary_column(field))
        by_name.setdefault(field.name, []).append((field.key, position))
    for task, name, *cells in _load_named("training_metricsummary", "v.last, v.low, v.high", ids, fields):
        for key, position in by_name[name]:
            found[task][key] = cells[position]


def _load_costs(ids: Sequence[str], fields: Sequence[Field], found: dict[str, Values]) -> None:
    keys = match_keys("task_id", ids)
    columns = ", ".join(COST_COLUMNS[field.name] for field in fields)
    for task, *cells in _fetch(Sql(f"SELECT task_id, {columns} FROM runs_run WHERE {keys.text}", keys.values)):
        for field, cell in zip(fields, cells, strict=True):
            if cell is not None:
                found[task][field.key] = cell
