"""Notifications that an environment was lost, and that it is back."""

from django.db.models import QuerySet

from apps.clusters.models import DevEnvironment
from apps.clusters.selectors import IS_STOPPED_BUT_HELD, IS_UNHEALTHY
from apps.notices.services.incidents import list_open_keys, open_incident, resolve_incidents

MAX_PER_PASS = 500
"""Number of lost environments that one pass notifies of; the next pass does the rest."""


def notify_lost_environments() -> None:
    """Open an incident for each lost environment and resolve those of environments that are back. Takes two queries
    however many environments there are, and more only if something changed."""
    told = list_open_keys("node_lost")
    lost = DevEnvironment.objects.filter(IS_UNHEALTHY | IS_STOPPED_BUT_HELD).order_by("pk")
    found = list(lost.values_list("pk", flat=True))
    for key in told.difference(found):
        resolve_incidents(key, "node_lost")
    if news := [key for key in found if key not in told][:MAX_PER_PASS]:
        _open_incidents(lost.filter(pk__in=news))


def _open_incidents(lost: QuerySet[DevEnvironment]) -> None:
    for row in lost.values("pk", "name", "host", "project_id", "cluster__name"):
        params = {"environment": row["name"], "host": row["host"] or row["name"], "cluster": row["cluster__name"]}
        link = f"/environments/{row['pk']}"
        open_incident("node_lost", row["pk"], "NOTICE_NODE_LOST", params, project=row["project_id"], link=link)
