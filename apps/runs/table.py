"""The table of runs as the API answers it: pages, columns, completion, groups."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from django.db.models import Q
from django.db.models.functions import Substr

from apps.accounts import access
from apps.accounts.models import Project, User
from apps.common.errors import ApiError
from apps.common.sql import AnyOf
from apps.runs.models import Run, RunTag
from apps.runs.search import PAGE_SECONDS, Search, search_tasks, use_indexes
from apps.runs.search_order import Sort
from apps.runs.table_values import CellValue, Values, load_values
from apps.training.public import MetricSummary, Task, TaskParameter, select_brief_columns, serialize_brief
from fermi.metrics.downsampling import Floats
from fermi.planning import plugins
from fermi.runs.completion import complete_query
from fermi.runs.fields import FIELDS, Field, FieldGroup, FieldKind, Statistic, is_higher_better, resolve_field
from fermi.runs.query import Condition, Query, QueryError, iterate_conditions, parse_query

MAX_COLUMNS, MAX_GROUPING, MAX_GROUPS, MAX_GROUPED = 40, 3, 200, 3_000
MAX_KNOWN_TASKS, MAX_KNOWN_COLUMNS, MAX_KNOWN_VALUES = 500, 300, 30
"""Names of parameters and curves, and values, are those of the reader's newest tasks."""
MAX_TESTED_TASKS = 1000
"""With a name that a query without results has."""
MAX_NOTE_SHOWN = 200


def parse_search(user: User, query: Mapping[str, Any], sort: str | None = None) -> Search:
    """Return the search that a request means. Raises ApiError 400 for an error in its query or its sort."""
    projects = read_projects(user, query.get("project"))
    order = parse_sort(sort if sort is not None else query.get("sort") or "-created")
    return Search(parse_text(query.get("query", "")), projects, order, ARCHIVED[query.get("archived") or "false"])


ARCHIVED = {"false": False, "true": True, "all": None}


def parse_text(text: str) -> Query:
    """Return the query. Raises ApiError 400 with the place of the error."""
    try:
        return parse_query(text)
    except QueryError as error:
        place = {"from": error.start, "to": error.end}
        raise ApiError(400, error.code, "query", place=place, **error.params) from None


def parse_sort(text: str) -> Sort:
    """Return the order. Raises ApiError 400 for a field by which runs cannot be sorted."""
    [field] = parse_columns([text.removeprefix("-")], "sort")
    if not field.sortable:
        raise ApiError(400, "QUERY_SORT_UNSUITABLE", "sort", column=field.key)
    return Sort(field, text.startswith("-"))


def parse_columns(names: Iterable[str], parameter: str = "column") -> list[Field]:
    """Return the fields of columns, each once. Raises ApiError 400 for a name that means none."""
    found: dict[str, Field] = {}
    for name in names:
        field = resolve_field(name)
        if field is None:
            raise ApiError(400, "QUERY_COLUMN_UNKNOWN", parameter, column=name[:100] or "–")
        found.setdefault(field.key, field)
    return list(found.values())


def read_projects(user: User, project: str | None = None) -> list[str] | None:
    """Return the projects in which the user's search finds tasks; None: all."""
    mine = access.read_changeable_projects(user)
    if project:
        return [project] if mine is None or project in mine else []
    return None if mine is None else list(mine)


def list_runs(user: User, query: Mapping[str, Any]) -> dict[str, Any]:
    """Return a page of the table."""
    columns = parse_columns(query.get("column", ()))
    search = parse_search(user, query)
    found = search_tasks(search, query["pageSize"], query.get("cursor") or "", seconds=PAGE_SECONDS)
    nothing = not found.ids and found.is_complete and not query.get("cursor")
    return {
        "items": list(serialize_runs(user, found.ids, columns)),
        "nextCursor": found.next_cursor,
        "total": found.total,
        "totalIsExact": None if found.total is None else found.is_exact,
        "searched": {"complete": found.is_complete, "tasks": found.read},
        "unknownNames": list_unknown_names(search) if nothing else [],
    }


def list_unknown_names(search: Search) -> list[str]:
    """Return the parameters and curves in a query that none of the runs has which are searched: typing errors. A name
    that very many runs have counts as known."""
    fields = {
        (one.field.group, one.field.name): one.field
        for one in iterate_conditions(search.query.root)
        if isinstance(one, Condition) and one.field.group is not FieldGroup.TASK
    }
    unknown: list[str] = []
    for (group, name), field in fields.items():
        model: Any = TaskParameter if group is FieldGroup.PARAMETER else MetricSummary
        indexed = model.objects.filter(name=name).order_by("number" if model is TaskParameter else "last")
        tasks = list(indexed.values_list("task_id", flat=True)[:MAX_TESTED_TASKS])
        own = Task.objects.filter(AnyOf(tasks))
        if search.projects is not None:
            own = own.filter(AnyOf(search.projects, "project_id"))
        if len(tasks) < MAX_TESTED_TASKS and not own.exists():
            unknown.append(name if group is FieldGroup.PARAMETER else f"metric.{field.name}")
    return unknown


def serialize_runs(user: User, ids: Sequence[str], columns: Sequence[Field]) -> Iterator[dict[str, Any]]:
    """Yield tasks as rows of the table. A task that was deleted meanwhile is left out."""
    mine = access.read_changeable_projects(user)
    briefs = {row["id"]: row for row in select_brief_columns(Task.objects.filter(AnyOf(ids)))}
    tags: dict[str, list[str]] = {}
    for task, name in RunTag.objects.filter(AnyOf(ids, "task_id")).order_by("name").values_list("task", "name"):
        tags.setdefault(task, []).append(name)
    records = {row["task"]: row for row in _query_records(ids)}
    values = load_values(ids, columns)
    for key in ids:
        if brief := briefs.get(key):
            brief["may_change"] = mine is None or mine.get(brief["project_id"], False)
            record = records.get(key)
            yield {
                "task": serialize_brief(brief),
                "tags": tags.get(key, []),
                "note": record["start"] if record else "",
                "archivedAt": record["archived_at"] if record else None,
                "values": _make_json(values[key]),
            }


def _query_records(ids: Sequence[str]) -> Any:
    return (
        Run.objects.filter(AnyOf(ids, "task_id"))
        .annotate(start=Substr("note", 1, MAX_NOTE_SHOWN))
        .values("task", "start", "archived_at")
    )


def _make_json(values: Mapping[str, CellValue]) -> dict[str, CellValue]:
    """Return the values without numbers that JSON has not."""
    return {
        name: None if isinstance(value, float) and not math.isfinite(value) else value for name, value in values.items()
    }


# Columns and completion


class NewestTasks:
    """What there is among the newest tasks of a reader: names of parameters and curves, values of properties."""

    def __init__(self, user: User) -> None:
        self._user = user
        self._projects = read_projects(user)
        self._ids: list[str] | None = None

    def list_names(self, group: FieldGroup, part: str) -> list[str]:
        """Return names of parameters or of curves that contain `part`."""
        model: Any = TaskParameter if group is FieldGroup.PARAMETER else MetricSummary
        rows = model.objects.filter(AnyOf(self._read_ids(), "task_id"), name__icontains=part)
        return list(rows.order_by("name").values_list("name", flat=True).distinct()[:MAX_KNOWN_COLUMNS])

    def list_values(self, field: Field, part: str) -> list[str]:
        """Return values of a field that contain `part`, the first by the alphabet."""
        if field.group is FieldGroup.PARAMETER:
            rows = TaskParameter.objects.filter(AnyOf(self._read_ids(), "task_id"), name=field.name)
            return self._list_distinct(rows, "value", part)
        tasks: Any = Task.objects.filter(AnyOf(self._read_ids()))
        match field.name:
            case "framework":
                names = [one.name for one in plugins.list_frameworks()]
                return [name for name in names if part.lower() in name]
            case "project":
                visible = access.filter_visible(Project.objects.all(), self._user, "pk")
                return self._list_distinct(visible.filter(Q(pk__icontains=part) | Q(name__icontains=part)), "pk", "")
        path = _VALUE_PATHS.get(field.name)
        return self._list_distinct(tasks, path, part) if path else []

    def _list_distinct(self, rows: Any, path: str, part: str) -> list[str]:
        chosen = rows.filter(**{f"{path}__icontains": part}) if part else rows
        values = chosen.exclude(**{f"{path}__isnull": True}).order_by(path).values_list(path, flat=True).distinct()
        return [str(value) for value in values[:MAX_KNOWN_VALUES] if value != ""]

    def _read_ids(self) -> list[str]:
        if self._ids is None:
            search = Search(Query(), self._projects, archived=None)
            self._ids = search_tasks(search, MAX_KNOWN_TASKS).ids
        return self._ids


_VALUE_PATHS = {
    "owner": "owner__username",
    "reason": "reason",
    "name": "name",
    "cluster": "cluster__name",
    "model": "model__name",
    "data": "dataset_version__dataset__name",
    "tag": "tags__name",
    "sweep": "trial__sweep",
    "environment": "nodes__name",
    "zone": "nodes__zone",
    "gpuType": "nodes__gpu_type",
}


def list_columns(user: User, search: str) -> dict[str, Any]:
    """Return what the table can show: properties of tasks, and the parameters and curves of the newest tasks."""
    known = NewestTasks(user)
    fields = [field for field in FIELDS.values() if field.column and search.lower() in field.name.lower()]
    fields += [
        Field(name, FieldKind.MIXED, FieldGroup.PARAMETER) for name in known.list_names(FieldGroup.PARAMETER, search)
    ]
    fields += [
        Field(name, FieldKind.NUMBER, FieldGroup.METRIC, statistic)
        for name in known.list_names(FieldGroup.METRIC, search)
        for statistic in Statistic
    ]
    return {"items": [_serialize_column(field) for field in fields]}


def _serialize_column(field: Field) -> dict[str, Any]:
    return {
        "name": field.key,
        "kind": field.kind.value,
        "label": field.name if field.statistic in (None, Statistic.LAST) else f"{field.name} ({field.statistic})",
        "choices": list(field.choices),
        "group": field.group.value,
        "sortable": field.sortable,
        "higherIsBetter": is_higher_better(field),
    }


def complete_text(user: User, text: str, position: int) -> dict[str, Any]:
    """Return what a query can be continued with."""
    found = complete_query(text, position, NewestTasks(user))
    items = [{"text": item.text, "kind": item.kind, "detail": item.detail} for item in found.items]
    return {"from": found.start, "to": found.end, "items": items}


# Groups


def group_runs(user: User, query: Mapping[str, Any]) -> dict[str, Any]:
    """Return the newest tasks that match in groups of equal values, the largest first, each with figures of the numbers
    in the columns."""
    by, columns = parse_columns(query["by"], "by"), parse_columns(query.get("column", ()))
    search = parse_search(user, query, sort="-created")
    found = search_tasks(search, MAX_GROUPED)
    with use_indexes():
        values = load_values(found.ids, {field.key: field for field in (*by, *columns)}.values())
    members: dict[tuple[CellValue, ...], list[Values]] = {}
    names = [field.key for field in by]
    for row in values.values():
        members.setdefault(tuple([row.get(name) for name in names]), []).append(row)
    largest = sorted(members.items(), key=lambda group: -len(group[1]))
    return {
        "items": [_serialize_group(by, columns, key, rows) for key, rows in largest[:MAX_GROUPS]],
        "groups": len(members),
        "tasks": len(found.ids),
        "complete": found.is_complete and found.next_cursor is None,
    }


_NUMBERS = (int, float)


def _serialize_group(
    by: Sequence[Field],
    columns: Sequence[Field],
    key: Sequence[CellValue],
    rows: Sequence[Values],
) -> dict[str, Any]:
    figures = {}
    for name in [field.key for field in columns]:
        cells = [row.get(name) for row in rows]
        numbers = np.array([cell for cell in cells if isinstance(cell, _NUMBERS)], np.float64)
        if len(numbers := numbers[np.isfinite(numbers)]):
            figures[name] = _summarize(numbers)
    named = _make_json({field.key: value for field, value in zip(by, key, strict=True)})
    return {"key": named, "count": len(rows), "values": figures}


def _summarize(numbers: Floats) -> dict[str, Any]:
    """Return figures of the numbers; None for one that a float cannot hold. The deviation is that of all of them."""
    with np.errstate(over="ignore", invalid="ignore"):
        found = {
            "mean": float(numbers.mean()), "std": float(numbers.std()),
            "min": float(numbers.min()), "max": float(numbers.max()),
        }  # fmt: skip
    return {**_make_json(found), "count": len(numbers)}
