"""What people are told of environments: that one was lost, and that it is back."""

from django.db.models import Q

from apps.clusters.models import DevEnvironment, EnvironmentStatus
from apps.notices.services.telling import open_keys, over, tell

MOST = 500


def look() -> None:
    """Two questions, however many environments there are; a write only where something changed."""
    told = open_keys("node_lost")
    held = Q(status=EnvironmentStatus.STOPPED, lease__isnull=False)
    lost = DevEnvironment.objects.filter(Q(status=EnvironmentStatus.UNHEALTHY) | held).order_by("pk")
    found = set()
    for row in lost.values("pk", "name", "host", "project_id", "cluster__name")[:MOST]:
        found.add(row["pk"])
        if row["pk"] not in told:
            params = {"environment": row["name"], "host": row["host"] or row["name"], "cluster": row["cluster__name"]}
            link = f"/environments/{row['pk']}"
            tell("node_lost", row["pk"], "NOTICE_NODE_LOST", params, project=row["project_id"], link=link)
    for key in told - found:
        over("node_lost", key)
