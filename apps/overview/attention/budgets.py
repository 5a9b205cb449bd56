"""Alerts: clusters that do not answer, and budgets that are nearly spent."""

from typing import Any

from django.conf import settings

from apps.accounts.models import Role
from apps.clusters.models import Cluster
from apps.overview.attention.entries import AlertContext, AlertKind, Rows, build_alert, render_alert_text
from apps.scheduling.models import Limits
from apps.scheduling.selectors import format_month
from apps.training.public import serialize_reason
from fermi.engines.check_results import CheckLevel


def _list_unreachable_clusters(context: AlertContext) -> Rows:
    rows = Cluster.objects.filter(away_since__isnull=False).order_by("away_since", "pk")
    return rows.values("id", "name", "away_since", "away_why")


def _describe_cluster(row: dict[str, Any]) -> dict[str, Any]:
    why = serialize_reason(row["away_why"].get("code", ""), row["away_why"].get("params", {}))
    said = render_alert_text("ATTENTION_CLUSTER_AWAY", cluster=row["name"], why=why["message"] if why else "")
    path = f"/admin/clusters/cluster/{row['id']}/change/"
    return build_alert(
        "cluster", row["id"], row["name"], row["away_since"], (said[0], why["hint"] if why else ""), path
    )


def _list_budgets(context: AlertContext) -> Rows:
    """Return the budgets that the user may act on."""
    scope = context.scope
    rows = Limits.objects.filter(budget__isnull=False, budget_warned=format_month(context.moment))
    if not scope.all:
        mine = {"project__memberships__user": scope.user, "project__memberships__role": Role.MAINTAINER}
        rows = rows.filter(**mine)
    rows = rows.filter(project=scope.project) if scope.project else rows
    return rows.order_by("project__name").values("project_id", "project__name", "budget")


def _describe_budget(row: dict[str, Any]) -> dict[str, Any]:
    name, key = row["project__name"], row["project_id"]
    said = render_alert_text(
        "BUDGET_NEARLY_SPENT", project=name, budget=f"{row['budget']:.2f}", currency=settings.CURRENCY
    )
    return build_alert("project", key, name, None, said, f"/usage?project={key}")


ALERT_KINDS = (
    AlertKind("cluster_away", CheckLevel.FAIL, _list_unreachable_clusters, _describe_cluster, operators=True),
    AlertKind("budget", CheckLevel.WARN, _list_budgets, _describe_budget),
)
