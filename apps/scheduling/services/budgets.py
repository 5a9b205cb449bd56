"""Notifies operators and a project's maintainers once a month that its budget will soon be spent."""

from collections.abc import Callable, Mapping
from datetime import datetime

from django.conf import settings
from django.db import transaction

from apps.accounts import audit
from apps.notices.services.incidents import open_incident
from apps.scheduling.models import Limits
from apps.scheduling.selectors import MonthlySpend, format_month

WARN_SHARE = 0.8


def warn_budgets(now: datetime, spent: Callable[[], Mapping[str, MonthlySpend]]) -> None:
    """Open an incident for each project that has spent WARN_SHARE of its budget. `spent`: returns the month's use by
    project; called only if a project has a budget."""
    month = format_month(now)
    rows = list(Limits.objects.filter(budget__gt=0).exclude(budget_warned=month).select_related("project"))
    known = spent() if rows else {}
    for row in rows:
        cost = known[row.project_id].cost if row.project_id in known else 0.0
        if row.budget is not None and cost >= WARN_SHARE * float(row.budget):
            with transaction.atomic():
                if Limits.objects.filter(pk=row.pk).exclude(budget_warned=month).update(budget_warned=month):
                    params = {"spent": round(cost, 2), "budget": float(row.budget), "currency": settings.CURRENCY}
                    audit.record_event(None, "budget.warned", row.project_id, project=row.project_id, **params)
                    told, key = {**params, "project": row.project.name}, f"{row.project_id} {month}"
                    open_incident("budget", key, "NOTICE_BUDGET", told, project=row.project_id, link="/usage")
