"""Pages of tasks, for any number of tasks. Which tasks a page shows is found by keys alone, which indexes answer."""

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any, NamedTuple

from django.db.models import IntegerField, Q, QuerySet, Subquery

from apps.accounts import access
from apps.accounts.models import User
from apps.clusters.models import DevEnvironment
from apps.common.clock import now
from apps.common.cursors import build_cursor_condition, get_column_path, make_cursor
from apps.common.errors import ApiError
from apps.common.pages import Column
from apps.common.sql import CompiledQuery, make_key_parameters
from apps.training.models import MAX_INDEXED_LENGTH, VALUE_BEGINNING, Attempt, Node, Task, TaskParameter
from apps.training.presenters.selectors import brief_columns, select_brief_columns, serialize_brief
from fermi.metrics import parameters
from fermi.metrics.parameters import ParameterCondition
from fermi.planning import plugins

WEEK = timedelta(days=7)
MAX_LISTED = 5_000
"""Most tasks that are counted, paged by number, and sorted by anything but their creation: the newest ones that match.
A cursor reaches all of them."""

FilterBuilder = Callable[[Any], Q]


def _filter_by_cause(cause: str) -> Q:
    """Return the filter for a cause as the overview counts it: tasks with an attempt that ended by it within WEEK; for
    a reason (`CODE`, or `CODE:what is wanted`), tasks that wait or ended for it."""
    reason, _, wanted = cause.partition(":")
    if wanted:
        return Q(reason=reason, reason_params__wanted=wanted)
    by_code = {"cause": "", "outcome": cause}  # as an earlier release stored them
    ended = Attempt.objects.filter(ended_at__gte=now() - WEEK, **(by_code if cause.isupper() else {"cause": cause}))
    tasks = Q(pk__in=ended.order_by("-pk").values("task")[:MAX_LISTED])
    return tasks | Q(reason=cause) if cause.isupper() else tasks


def _filter_by_parameters(conditions: Sequence[ParameterCondition]) -> Q:
    """Return the filter for tasks with parameters that fulfil all conditions; each finds the newest of its tasks."""
    found = Q()
    for one in conditions:
        rows = TaskParameter.objects.filter(name=one.name)
        if one.number is None:
            rows = rows.alias(begin=VALUE_BEGINNING).filter(begin=one.value[:MAX_INDEXED_LENGTH])
            if len(one.value) >= MAX_INDEXED_LENGTH:  # not `=`: SQLite would put it into `begin`, and use no index
                rows = rows.filter(value__range=(one.value, one.value))
        else:
            rows = rows.filter(**{f"number{_LOOKUPS[one.operator]}": one.number})
        found &= Q(pk__in=rows.order_by("-pk").values("task")[:MAX_LISTED])
    return found


_LOOKUPS = {"=": "", "<": "__lt", "<=": "__lte", ">": "__gt", ">=": "__gte"}


COMPILED_FILTERS: dict[str, FilterBuilder] = {
    "framework": lambda name: Q(framework=name),
    "owner": lambda name: Q(owner=Subquery(User.objects.filter(username=name).values("pk")[:1])),
    "project": lambda key: Q(project=key),
}
"""Filters of which pages with all combinations are compiled: every page and script uses them."""
FILTERS: dict[str, FilterBuilder] = COMPILED_FILTERS | {
    "status": lambda states: Q(state__in=states),
    "environment": lambda key: _filter_by_nodes(Q(environment=key)),
    "zone": lambda zone: _filter_by_nodes(Q(zone=zone) | Q(environment__in=_list_zone_environments(zone))),
    "createdAfter": lambda moment: Q(created_at__gte=moment),
    "createdBefore": lambda moment: Q(created_at__lt=moment),
    "cause": _filter_by_cause,
    "task": lambda keys: Q(pk__in=keys),
    "parameter": _filter_by_parameters,
    "archived": lambda archived: Q(run__archived_at__isnull=not archived),  # rows of `apps.runs`, a layer above
    "search": lambda word: Q(name__icontains=word) | Q(pk__icontains=word),
    "cursor": lambda behind: behind,
}


def _filter_by_nodes(nodes: Q) -> Q:
    """Return the filter for the tasks of the newest of these nodes."""
    return Q(pk__in=Node.objects.filter(nodes).order_by("-pk").values("task")[:MAX_LISTED])


def _list_zone_environments(zone: str) -> list[str]:
    return list(DevEnvironment.objects.filter(zone=zone).values_list("pk", flat=True))


class _CountRows(Subquery):
    template = "(SELECT COUNT(*) FROM (%(subquery)s) AS counted)"
    output_field = IntegerField()


def list_tasks(user: User, query: Mapping[str, Any]) -> dict[str, Any]:
    """Return a page of tasks, by its number or from a cursor on. Raises ApiError 400 for a page too far back."""
    size, ordering, given = query["pageSize"], tuple(query["ordering"]), _read_filters(query)
    by_number = "cursor" not in given
    counts = by_number if query.get("count") is None else query["count"]
    first = size * (query["page"] - 1) if by_number else 0
    if first >= MAX_LISTED:
        raise ApiError(400, "PAGE_TOO_FAR", "page", most=MAX_LISTED)
    mine = access.read_changeable_projects(user)
    shape = PageShape(tuple(given.pop("status", ())), ordering, first, size, counts)
    rows, total = _load_page(mine, shape, given)
    for row in rows:
        row["may_change"] = mine is None or mine[row["project_id"]]
    return {
        "items": [serialize_brief(row) for row in rows[:size]],
        "total": min(total, MAX_LISTED) if counts else None,
        "totalIsExact": total <= MAX_LISTED if counts else None,
        "page": query["page"] if by_number else None,
        "pageSize": size,
        "nextCursor": make_cursor(rows[size - 1], ordering[0], Task) if len(rows) > size else None,
    }


def _read_filters(query: Mapping[str, Any]) -> dict[str, Any]:
    given = {name: query[name] for name in FILTERS if query.get(name) or (name == "archived" and name in query)}
    if "framework" in given:
        given["framework"] = plugins.resolve_framework_name(given["framework"])
    if "parameter" in given:
        given["parameter"] = [_parse_condition(text) for text in given["parameter"]]
    if "cursor" in given:
        given["cursor"] = build_cursor_condition(given["cursor"], query["ordering"][0], Task)
    return given


def _parse_condition(text: str) -> ParameterCondition:
    if found := parameters.parse_condition(text):
        return found
    raise ApiError(400, "PARAMETER_CONDITION_INVALID", "parameter", condition=text)


class PageShape(NamedTuple):
    """Everything of a page but its filters' values: one compiled query serves all pages of a shape."""

    states: tuple[str, ...]
    ordering: tuple[Column, ...]
    first: int
    size: int
    counts: bool


def _load_page(
    writable_projects: Mapping[str, bool] | None, shape: PageShape, filters: Mapping[str, Any]
) -> tuple[list[dict[str, Any]], int]:
    """Return the page's rows, and one more if there is one, and how many match if that is requested: at most one more
    than MAX_LISTED."""
    projects = None if writable_projects is None else list(writable_projects)
    if projects == []:
        return [], 0
    if filters.keys() <= COMPILED_FILTERS.keys():
        among = make_key_parameters(projects or ())
        pages = _COUNTED_PAGES if shape.counts else _PAGES
        rows = pages.fetch(None if projects is None else len(among), shape, **filters, **among)
    else:
        rows = list(query_page(projects, shape, filters))
    if rows and shape.counts:
        return rows, rows[0]["total_"]
    beyond = shape.first and shape.counts
    return rows, _filter_tasks(projects, shape, filters)[: MAX_LISTED + 1].count() if beyond else 0


def query_page(projects: Sequence[str] | None, shape: PageShape, filters: Mapping[str, Any]) -> QuerySet[Task, Any]:
    """Return the query of a page of tasks in these projects; None: in all."""
    matching = counted = _filter_tasks(projects, shape, filters)
    if get_column_path(shape.ordering[0]) != "created_at":
        matching = Task.objects.filter(pk__in=matching.order_by("-created_at", "pk").values("pk")[:MAX_LISTED])
    ordering = (*shape.ordering, "pk")
    shown = matching.order_by(*ordering).values("pk")[shape.first : shape.first + shape.size + 1]
    more = {"total_": _CountRows(counted.values("pk")[: MAX_LISTED + 1])} if shape.counts else {}
    return select_brief_columns(Task.objects.filter(pk__in=shown), **more).order_by(*ordering)


def _filter_tasks(projects: Sequence[str] | None, shape: PageShape, filters: Mapping[str, Any]) -> QuerySet[Task]:
    rows = Task.trainings.all() if projects is None else Task.trainings.filter(project__in=projects)
    if shape.states:
        rows = rows.filter(state__in=shape.states)
    for name, value in filters.items():
        rows = rows.filter(FILTERS[name](value))
    return rows


def _query_compiled_page(projects: int | None, shape: PageShape, /, **filters: Any) -> QuerySet[Task, Any]:
    return query_page(projects and [filters.pop(f"key{index}") for index in range(projects)], shape, filters)  # type: ignore[arg-type]


_PAGES = CompiledQuery(_query_compiled_page, brief_columns())
_COUNTED_PAGES = CompiledQuery(_query_compiled_page, brief_columns(total_=None))
