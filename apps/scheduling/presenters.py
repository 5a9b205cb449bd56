"""Limits as the API returns them, with their present use."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import InitVar, dataclass, field
from datetime import datetime
from typing import Any

from django.conf import settings
from django.db.models import F, OuterRef, QuerySet, Subquery

from apps.accounts.access import AnyUser
from apps.accounts.models import Membership, Project
from apps.scheduling import selectors
from apps.scheduling.models import Limits, Share, UserLimits
from apps.scheduling.selectors import MonthlySpend
from fermi.scheduler.limits import GpuUsage
from fermi.scheduler.snapshot import EnvironmentInfo, RunningTask

LIMIT_COLUMNS = {
    "weight": "weight",
    "guaranteedGpus": "guaranteed_gpus",
    "mostGpus": "most_gpus",
    "mostTasks": "most_tasks",
    "gpuHours": "gpu_hours",
    "gpuTypes": "gpu_types",
    "zones": "zones",
    "priorities": "priorities",
    "longestRunSeconds": "longest_run_seconds",
    "userMostGpus": "user_most_gpus",
    "userMostTasks": "user_most_tasks",
    "userGpuHours": "user_gpu_hours",
    "maxEnvironments": "max_environments",
    "maxEnvironmentGpus": "max_environment_gpus",
    "userMaxEnvironments": "user_max_environments",
    "userMaxEnvironmentGpus": "user_max_environment_gpus",
    "atBudget": "at_budget",
    "maxFileBytes": "max_file_bytes",
    "maxCacheBytes": "max_cache_bytes",
}


@dataclass(slots=True)
class CurrentUsage:
    """What tasks hold at a moment, and what the month has cost so far. `environments`: number of managed environments,
    and GPUs of those that run, by project, and by project and user name."""

    moment: datetime
    held: InitVar[Iterable[RunningTask]]
    places: InitVar[Sequence[EnvironmentInfo]]
    environments: Mapping[Any, tuple[int, int]] = field(default_factory=dict)
    use: GpuUsage = field(init=False)
    spent: dict[str, MonthlySpend] = field(init=False)

    def __post_init__(self, held: Iterable[RunningTask], places: Sequence[EnvironmentInfo]) -> None:
        self.use = GpuUsage(held, {place.id: place for place in places})
        self.spent = selectors.sum_spend(self.moment, held, places)

    def get_spend(self, project: str) -> MonthlySpend:
        return self.spent.get(project, MonthlySpend())

    def build_environment_use(self, key: Any) -> dict[str, int]:
        count, gpus = self.environments.get(key, (0, 0))
        return {"environments": count, "environmentGpus": gpus}


def serialize_limits(user: AnyUser, project: Project, now: CurrentUsage) -> dict[str, Any]:
    row = Limits.objects.filter(project=project).select_related("updated_by").first() or Limits(project=project)
    share = Share.objects.filter(project=project).first()
    spent = now.get_spend(project.pk)
    return {
        "projectId": project.pk,
        **{name: getattr(row, column) for name, column in LIMIT_COLUMNS.items()},
        "budget": None if row.budget is None else float(row.budget),
        "currency": settings.CURRENCY,
        "updatedAt": row.updated_at,
        "updatedBy": row.updated_by.username if row.updated_by else "",
        "mayChange": user.is_superuser,
        "use": {
            "gpus": now.use.gpus[project.pk],
            "sharedGpus": now.use.shared[project.pk],
            "tasks": now.use.tasks[project.pk],
            "gpuHours": round(sum(spent.hours.values()), 3),
            "cost": round(spent.cost, 2),
            "share": round(selectors.compute_share(share, now.moment), 1),
            **now.build_environment_use(project.pk),
        },
    }


def list_members(project: Project) -> QuerySet[Membership, Any]:
    """Return rows for `make_member_serializer`."""
    own = UserLimits.objects.filter(project=project, user=OuterRef("user"))
    columns = {name: Subquery(own.values(column)[:1]) for name, column in USER_LIMIT_COLUMNS.items()}
    rows = Membership.objects.filter(project=project)
    return rows.values(username=F("user__username"), own=Subquery(own.values("pk")[:1]), **columns)


USER_LIMIT_COLUMNS = {
    "mostGpus": "most_gpus",
    "mostTasks": "most_tasks",
    "gpuHours": "gpu_hours",
    "maxEnvironments": "max_environments",
    "maxEnvironmentGpus": "max_environment_gpus",
}


def make_member_serializer(project: Project, now: CurrentUsage) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """Return the function that makes the API's shape of a row of `list_members`."""
    each = selectors.get_default_user_limits(selectors.get_limits(project))
    spent = now.get_spend(project.pk)

    def shape(row: dict[str, Any]) -> dict[str, Any]:
        key = (project.pk, row["username"])
        of_all = {name: each.get(column) for name, column in USER_LIMIT_COLUMNS.items()}
        hours = round(spent.hours.get(row["username"], 0.0), 3)
        use = {
            "gpus": now.use.gpus[key],
            "tasks": now.use.tasks[key],
            "gpuHours": hours,
            **now.build_environment_use(key),
        }
        own = row["own"] is not None
        return {**row, **({} if own else of_all), "own": own, "use": use}

    return shape
