"""Alerts: clusters that do not answer, and budgets that are nearly spent."""

from typing import Any

from django.conf import settings

from apps.accounts.models import Role
from apps.clusters.models import Cluster
from apps.overview.attention.entries import Kind, Looked, Rows, entry, say
from apps.scheduling.models import Limits
from apps.scheduling.selectors import month_name
from apps.training.presenters import task_presenter
from fermi.engines.check_results import Level


def _away(looked: Looked) -> Rows:
    rows = Cluster.objects.filter(away_since__isnull=False).order_by("away_since", "pk")
    return rows.values("id", "name", "away_since", "away_why")


def _cluster(row: dict[str, Any]) -> dict[str, Any]:
    why = task_presenter.reason(row["away_why"].get("code", ""), row["away_why"].get("params", {}))
    said = say("ATTENTION_CLUSTER_AWAY", cluster=row["name"], why=why["message"] if why else "")
    path = f"/admin/clusters/cluster/{row['id']}/change/"
    return entry("cluster", row["id"], row["name"], row["away_since"], (said[0], why["hint"] if why else ""), path)


def _budgets(looked: Looked) -> Rows:
    """Return the budgets that the user may act on."""
    scope = looked.scope
    rows = Limits.objects.filter(budget__isnull=False, budget_warned=month_name(looked.moment))
    if not scope.all:
        mine = {"project__memberships__user": scope.user, "project__memberships__role": Role.MAINTAINER}
        rows = rows.filter(**mine)
    rows = rows.filter(project=scope.project) if scope.project else rows
    return rows.order_by("project__name").values("project_id", "project__name", "budget")


def _budget(row: dict[str, Any]) -> dict[str, Any]:
    name, key = row["project__name"], row["project_id"]
    said = say("BUDGET_NEARLY_SPENT", project=name, budget=f"{row['budget']:.2f}", currency=settings.CURRENCY)
    return entry("project", key, name, None, said, f"/usage?project={key}")


KINDS = (
    Kind("cluster_away", Level.FAIL, _away, _cluster, operators=True),
    Kind("budget", Level.WARN, _budgets, _budget),
)
