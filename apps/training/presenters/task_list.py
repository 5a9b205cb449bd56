"""Pages of tasks, for any number of tasks. Which tasks a page shows is found by keys alone, which indexes answer."""

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any, NamedTuple

from django.db.models import IntegerField, Q, QuerySet, Subquery

from apps.accounts import access
from apps.accounts.models import User
from apps.clusters.models import DevEnvironment
from apps.common.clock import now
from apps.common.cursors import after, behind, path
from apps.common.errors import ApiError
from apps.common.pages import Column
from apps.common.sql import CompiledQuery, key_parameters
from apps.training.models import Attempt, Node, Task
from apps.training.presenters.selectors import brief, brief_columns, briefs
from fermi.planning import plugins

WEEK = timedelta(days=7)
MOST = 5_000
"""Most tasks that are counted, paged by number, and sorted by anything but their creation: the newest ones that match.
A cursor reaches all of them."""

Filter = Callable[[Any], Q]


def _by_cause(cause: str) -> Q:
    """Return the filter for a cause as the overview counts it: tasks with an attempt that ended by it within WEEK; for
    a reason (`CODE`, or `CODE:what is wanted`), tasks that wait or ended for it."""
    reason, _, wanted = cause.partition(":")
    if wanted:
        return Q(reason=reason, reason_params__wanted=wanted)
    by_code = {"cause": "", "outcome": cause}  # as an earlier release stored them
    ended = Attempt.objects.filter(ended_at__gte=now() - WEEK, **(by_code if cause.isupper() else {"cause": cause}))
    tasks = Q(pk__in=ended.order_by("-pk").values("task")[:MOST])
    return tasks | Q(reason=cause) if cause.isupper() else tasks


COMPILED: dict[str, Filter] = {
    "framework": lambda name: Q(framework=name),
    "owner": lambda name: Q(owner=Subquery(User.objects.filter(username=name).values("pk")[:1])),
    "project": lambda key: Q(project=key),
}
"""Filters of which pages with all combinations are compiled: every page and script uses them."""
FILTERS: dict[str, Filter] = COMPILED | {
    "status": lambda states: Q(state__in=states),
    "environment": lambda key: _on(Q(environment=key)),
    "zone": lambda zone: _on(Q(zone=zone) | Q(environment__in=_within(zone))),
    "createdAfter": lambda moment: Q(created_at__gte=moment),
    "createdBefore": lambda moment: Q(created_at__lt=moment),
    "cause": _by_cause,
    "task": lambda keys: Q(pk__in=keys),
    "search": lambda word: Q(name__icontains=word) | Q(pk__icontains=word),
    "cursor": lambda behind: behind,
}


def _on(nodes: Q) -> Q:
    """Return the filter for the tasks of the newest of these nodes."""
    return Q(pk__in=Node.objects.filter(nodes).order_by("-pk").values("task")[:MOST])


def _within(zone: str) -> list[str]:
    return list(DevEnvironment.objects.filter(zone=zone).values_list("pk", flat=True))


class _Count(Subquery):
    template = "(SELECT COUNT(*) FROM (%(subquery)s) AS counted)"
    output_field = IntegerField()


def listed(user: User, query: Mapping[str, Any]) -> dict[str, Any]:
    """Return a page of tasks, by its number or from a cursor on. Raises ApiError 400 for a page too far back."""
    size, ordering, given = query["pageSize"], tuple(query["ordering"]), _given(query)
    by_number = "cursor" not in given
    counts = by_number if query.get("count") is None else query["count"]
    first = size * (query["page"] - 1) if by_number else 0
    if first >= MOST:
        raise ApiError(400, "PAGE_TOO_FAR", "page", most=MOST)
    mine = access.changed_by(user)
    shape = Shape(tuple(given.pop("status", ())), ordering, first, size, counts)
    rows, total = _found(mine, shape, given)
    for row in rows:
        row["may_change"] = mine is None or mine[row["project_id"]]
    return {
        "items": [brief(row) for row in rows[:size]],
        "total": min(total, MOST) if counts else None,
        "totalIsExact": total <= MOST if counts else None,
        "page": query["page"] if by_number else None,
        "pageSize": size,
        "nextCursor": after(rows[size - 1], ordering[0], Task) if len(rows) > size else None,
    }


def _given(query: Mapping[str, Any]) -> dict[str, Any]:
    given = {name: query[name] for name in FILTERS if query.get(name)}
    if "framework" in given:
        given["framework"] = plugins.framework_name(given["framework"])
    if "cursor" in given:
        given["cursor"] = behind(given["cursor"], query["ordering"][0], Task)
    return given


class Shape(NamedTuple):
    """Everything of a page but its filters' values: one compiled query serves all pages of a shape."""

    states: tuple[str, ...]
    ordering: tuple[Column, ...]
    first: int
    size: int
    counts: bool


def _found(mine: Mapping[str, bool] | None, shape: Shape, given: Mapping[str, Any]) -> tuple[list[dict[str, Any]], int]:
    """Return the page's rows, and one more if there is one, and how many match if that is requested: at most one more
    than MAX_LISTED."""
    projects = None if mine is None else list(mine)
    if projects == []:
        return [], 0
    if given.keys() <= COMPILED.keys():
        among = key_parameters(projects or ())
        pages = _COUNTED_PAGES if shape.counts else _PAGES
        rows = pages.fetch(None if projects is None else len(among), shape, **given, **among)
    else:
        rows = list(page(projects, shape, given))
    if rows and shape.counts:
        return rows, rows[0]["total_"]
    beyond = shape.first and shape.counts
    return rows, _matching(projects, shape, given)[: MOST + 1].count() if beyond else 0


def page(projects: Sequence[str] | None, shape: Shape, given: Mapping[str, Any]) -> QuerySet[Task, Any]:
    """Return the query of a page of tasks in these projects; None: in all."""
    matching = counted = _matching(projects, shape, given)
    if path(shape.ordering[0]) != "created_at":
        matching = Task.objects.filter(pk__in=matching.order_by("-created_at", "pk").values("pk")[:MOST])
    ordering = (*shape.ordering, "pk")
    shown = matching.order_by(*ordering).values("pk")[shape.first : shape.first + shape.size + 1]
    more = {"total_": _Count(counted.values("pk")[: MOST + 1])} if shape.counts else {}
    return briefs(Task.objects.filter(pk__in=shown), **more).order_by(*ordering)


def _matching(projects: Sequence[str] | None, shape: Shape, given: Mapping[str, Any]) -> QuerySet[Task]:
    rows = Task.trainings.all() if projects is None else Task.trainings.filter(project__in=projects)
    if shape.states:
        rows = rows.filter(state__in=shape.states)
    for name, value in given.items():
        rows = rows.filter(FILTERS[name](value))
    return rows


def _compiled(projects: int | None, shape: Shape, /, **given: Any) -> QuerySet[Task, Any]:
    return page(projects and [given.pop(f"key{index}") for index in range(projects)], shape, given)  # type: ignore[arg-type]


_PAGES = CompiledQuery(_compiled, brief_columns())
_COUNTED_PAGES = CompiledQuery(_compiled, brief_columns(total_=None))
