"""All alerts, counted by kind, and a page of them."""

from collections.abc import Iterable, Mapping
from datetime import datetime
from functools import cache
from typing import Any

from django.db.models import QuerySet

from apps.overview import machines as there
from apps.overview.attention import budgets, machines, tasks
from apps.overview.attention.entries import AlertContext, AlertKind, Rows
from apps.overview.scope import Scope
from apps.training.public import Task
from fermi.engines.check_results import CheckLevel

_WORST_FIRST = (CheckLevel.FAIL, CheckLevel.WARN, CheckLevel.PASS)
ALERT_KINDS: tuple[AlertKind, ...] = tuple(
    sorted(
        (*budgets.ALERT_KINDS, *tasks.ALERT_KINDS, *machines.ALERT_KINDS),
        key=lambda kind: _WORST_FIRST.index(kind.level),
    )
)
LEVEL_NAMES = {CheckLevel.FAIL: "fail", CheckLevel.WARN: "warn", CheckLevel.PASS: "info"}


def list_alerts(scope: Scope, query: Mapping[str, Any], moment: datetime) -> dict[str, Any]:
    """Return a page of alerts, the worst kind first, with the number of each kind. The number of queries does not
    depend on the number of alerts."""
    looked = AlertContext(scope, moment, cache(lambda: there.list_machines(scope, moment)))
    found = [(kind, kind.find(looked)) for kind in ALERT_KINDS if kind.concerns(scope)]
    counts = {kind.name: _count_rows(rows) for kind, rows in found}
    wanted = [(kind, rows) for kind, rows in found if not query.get("kind") or kind.name in query["kind"]]
    number, size = query["page"], query["pageSize"]
    skip, items = (number - 1) * size, list[dict[str, Any]]()
    for kind, rows in wanted:
        part = rows[skip : skip + size - len(items)] if skip < counts[kind.name] and len(items) < size else ()
        items += [{"kind": kind.name, "level": LEVEL_NAMES[kind.level], **kind.serialize(row)} for row in part]
        skip = max(skip - counts[kind.name], 0)
    return {
        "kinds": [
            {"kind": kind.name, "level": LEVEL_NAMES[kind.level], "count": counts[kind.name]}
            for kind, _ in found
            if counts[kind.name]
        ],
        "items": list(_name_holders(scope, items)),
        "total": sum(counts[kind.name] for kind, _ in wanted),
        "page": number,
        "pageSize": size,
    }


def _count_rows(rows: Rows) -> int:
    return rows.count() if isinstance(rows, QuerySet) else len(rows)


def _name_holders(scope: Scope, items: Iterable[dict[str, Any]]) -> Iterable[dict[str, Any]]:
    """Yield the alerts with the task that holds the subject, if the user may see it."""
    items = list(items)
    held = {item["holder"] for item in items if item["holder"]}
    names = dict(scope.filter_projects(Task.objects.filter(pk__in=held)).values_list("pk", "name")) if held else {}
    for item in items:
        holder = item.pop("holder")
        item["holder"] = {"taskId": holder, "name": names[holder]} if holder in names else None
        yield item
