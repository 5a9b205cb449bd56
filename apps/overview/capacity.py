"""Recent changes of capacity, from the audit trail, the environments and the reservations."""

from datetime import datetime, timedelta
from typing import Any

from django.db.models import Q

from apps.accounts.models import AuditEvent
from apps.overview.scope import Scope
from apps.scheduling import reservation_presenter

RECENT_SPAN = timedelta(days=7)
MAX_EVENTS = 30
CHANGE_ACTIONS = ("environment.register", "environment.change", "environment.remove")


def list_capacity_events(scope: Scope, moment: datetime) -> list[dict[str, Any]]:
    """Return the MAX_EVENTS newest events."""
    since = moment - RECENT_SPAN
    found = [*_list_changes(scope, since), *_list_discovered(scope, since), *_list_reservations(scope, since, moment)]
    return sorted(found, key=lambda one: one["at"], reverse=True)[:MAX_EVENTS]


def _list_changes(scope: Scope, since: datetime) -> list[dict[str, Any]]:
    """Return changes by users: registered, removed, cordoned, uncordoned, started and stopped."""
    rows = scope.filter_projects(AuditEvent.objects.filter(at__gte=since, action__in=CHANGE_ACTIONS))
    matters = ~Q(action="environment.change") | Q(data__has_key="cordoned") | Q(data__has_key="status")
    columns = ("at", "action", "target", "data", "actor__username")
    changes = list(rows.filter(matters).order_by("-pk").values_list(*columns)[:MAX_EVENTS])
    targets = {target for _, _, target, _, _ in changes}
    there = dict(scope.environments().filter(pk__in=targets).values_list("pk", "name"))
    narrowed = bool(scope.zone or scope.gpu_type)

    def who(actor: str | None) -> str:
        return actor or "" if scope.all else ""  # the trail itself is for maintainers

    return [
        _build_event(
            at,
            _classify_change(action, data),
            target if target in there else None,
            name,
            data.get("gpu_count"),
            who(actor),
        )
        for at, action, target, data, actor in changes
        for name in [there.get(target) or data.get("name") or target]
        if target in there or not narrowed
    ]


def _classify_change(action: str, data: dict[str, Any]) -> str:
    if action == "environment.register":
        return "came"
    if action == "environment.remove":
        return "went"
    if "cordoned" in data:
        return "cordoned" if data["cordoned"] else "uncordoned"
    return str(data["status"])


def _list_discovered(scope: Scope, since: datetime) -> list[dict[str, Any]]:
    """Return environments that engines listed or workers formed, and those that disappeared."""
    rows = scope.environments().exclude(discovered_as="")
    columns = ("id", "name", "gpu_count")
    came = rows.filter(created_at__gte=since).order_by("-created_at").values_list("created_at", *columns)[:MAX_EVENTS]
    went = rows.filter(gone_at__gte=since).order_by("-gone_at").values_list("gone_at", *columns)[:MAX_EVENTS]
    return [
        _build_event(at, kind, key, name, gpus)
        for kind, told in (("came", came), ("went", went))
        for at, key, name, gpus in told
    ]


def _list_reservations(scope: Scope, since: datetime, moment: datetime) -> list[dict[str, Any]]:
    rows = reservation_presenter.list_visible_reservations(scope.user).filter(
        Q(begins_at__range=(since, moment)) | Q(ends_at__range=(since, moment))
    )
    if scope.project:
        rows = rows.filter(Q(project=scope.project) | Q(environments__project=scope.project)).distinct()
    if scope.zone or scope.gpu_type:
        rows = rows.filter(environments__in=scope.environments()).distinct()
    shape = reservation_presenter.make_serializer(scope.user)
    found = []
    for row in rows.order_by("-begins_at")[:MAX_EVENTS]:
        shown = shape(row)
        names = ", ".join(one["name"] for one in shown["environments"])
        kind = "maintenance" if shown["kind"] == "maintenance" else "reserved"
        for at, name in ((row.begins_at, f"{kind}Begins"), (row.ends_at, f"{kind}Ends")):
            if since <= at <= moment:
                found.append(
                    _build_event(at, name, None, names, None, shown["projectName"], path="/queue/reservations")
                )
    return found


def _build_event(
    at: datetime, kind: str, key: str | None, name: str, gpus: int | None = None, actor: str = "", path: str = ""
) -> dict[str, Any]:
    path = path or (f"/environments/{key}" if key else "")
    return {"at": at, "kind": kind, "name": name, "gpus": gpus, "who": actor, "path": path or None}


EVENT_KINDS = (
    "came", "went", "cordoned", "uncordoned", "running", "stopped", "unhealthy", "reservedBegins", "reservedEnds",
    "maintenanceBegins", "maintenanceEnds",
)  # fmt: skip
