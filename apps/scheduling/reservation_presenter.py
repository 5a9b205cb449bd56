"""Reservations and maintenance windows, as the API returns them."""

from collections.abc import Callable, Mapping
from typing import Any

from django.db.models import Exists, OuterRef, Q, QuerySet

from apps.accounts import access
from apps.accounts.models import User
from apps.clusters.selectors import list_visible_environments
from apps.common.clock import now
from apps.scheduling.models import Reservation
from apps.scheduling.services import reservations


def list_visible_reservations(user: User) -> QuerySet[Reservation]:
    """Return the reservations of environments that the user may see, and those for the user's projects."""
    rows = Reservation.objects.select_related("project", "created_by").prefetch_related("environments")
    if user.is_superuser:
        return rows
    return rows.filter(
        Q(project__in=access.select_projects(user))
        | Exists(list_visible_environments(user).filter(reservations=OuterRef("pk")))
    )


def list_reservations(user: User, query: Mapping[str, Any]) -> QuerySet[Reservation]:
    """Return the visible reservations that match the query."""
    rows = list_visible_reservations(user).filter(
        ends_at__gt=query.get("from") or now(), note__icontains=query["search"]
    )
    if until := query.get("to"):
        rows = rows.filter(begins_at__lt=until)
    if project := query.get("project"):
        own = Reservation.environments.through.objects.filter(devenvironment__project=project)
        rows = rows.filter(Q(project=project) | Exists(own.filter(reservation=OuterRef("pk"))))
    return rows


def make_serializer(user: User) -> Callable[[Reservation], dict[str, Any]]:
    """Return the function that makes the API's shape of a reservation. Of a project that the user is not in, it shows
    only the time."""
    mine = set(access.list_roles(user))
    maintained = reservations.list_maintained_projects(user)
    seen = None if user.is_superuser else set(list_visible_environments(user).values_list("pk", flat=True))

    def serialize(row: Reservation) -> dict[str, Any]:
        known = row.project if user.is_superuser or row.project_id in mine else None
        there = sorted(row.environments.all(), key=lambda one: one.name)
        return {
            "id": row.pk,
            "kind": "maintenance" if row.project_id is None else "reserved",
            "projectId": known.pk if known else None,
            "projectName": known.name if known else "",
            "environments": [{"id": one.pk, "name": one.name} for one in there if seen is None or one.pk in seen],
            "beginsAt": row.begins_at,
            "endsAt": row.ends_at,
            "note": row.note if known or row.project_id is None else "",
            "createdAt": row.created_at,
            "createdBy": row.created_by.username if row.created_by else "",
            "mayChange": user.is_superuser or (bool(there) and {one.project_id for one in there} <= maintained),
        }

    return serialize
