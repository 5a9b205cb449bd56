"""The projects with what is in them: people, service accounts and running tasks."""

from collections.abc import Mapping, Sequence
from typing import Any

from django.db.models import Count, Q, QuerySet, Sum

from apps.accounts.models import Membership, User
from apps.training.public import STATES_WITH_ATTEMPT, Task


def summarize_projects(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return rows of `list_projects` with their counts. Takes three queries, however many projects there are."""
    keys = [row["id"] for row in rows]
    members = _group(Membership.objects.filter(user__service_project=None), "project", keys, members=Count("pk"))
    accounts = _group(User.objects.filter(is_active=True), "service_project", keys, serviceAccounts=Count("pk"))
    running = Q(state__in=sorted(STATES_WITH_ATTEMPT))
    tasks = _group(Task.objects.filter(running), "project", keys, runningTasks=Count("pk"), gpus=Sum("total_gpus"))
    none = {"members": 0, "serviceAccounts": 0, "runningTasks": 0, "gpus": 0}
    return [
        {**row, **none, **members.get(key, {}), **accounts.get(key, {}), **tasks.get(key, {})}
        for row, key in zip(rows, keys, strict=True)
    ]


def _group(rows: QuerySet[Any, Any], column: str, keys: list[str], **counts: Any) -> dict[str, dict[str, int]]:
    found = rows.filter(**{f"{column}__in": keys}).order_by().values(column).annotate(**counts)
    return {row.pop(column): row for row in found}
