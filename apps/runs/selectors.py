"""Reads what people say of runs, and saved views, for the API."""

from collections.abc import Iterable
from typing import Any

from django.db.models import Q, QuerySet

from apps.accounts import access
from apps.accounts.models import User
from apps.runs.models import Run, RunTag, RunView
from apps.training.public import Task, TaskKind


def get_record(task: Task) -> dict[str, Any]:
    """Return what people say of a run, as the API answers it."""
    row = Run.objects.filter(task=task).values("note", "archived_at").first() or {"note": "", "archived_at": None}
    tags = RunTag.objects.filter(task=task).order_by("name").values_list("name", flat=True)
    return {"taskId": task.pk, "tags": list(tags), "note": row["note"], "archivedAt": row["archived_at"]}


def list_visible_tasks(user: User, keys: Iterable[str]) -> set[str]:
    """Return those of the tasks that the user may see."""
    rows = access.filter_visible(Task.objects.filter(pk__in=list(keys), kind=TaskKind.TRAINING), user)
    return set(rows.values_list("pk", flat=True))


def query_views(user: User) -> QuerySet[RunView]:
    """Return the user's own views and those of the user's projects."""
    shared = Q(project__isnull=False) if user.is_superuser else Q(project__in=access.select_projects(user))
    return RunView.objects.filter(Q(user=user) | shared)


def serialize_views(user: User, views: Iterable[RunView]) -> list[dict[str, Any]]:
    """Return views as the API answers them, without pinned runs and baselines that the user may not see."""
    views, may_change = list(views), access.make_usage_check(user)
    wanted = {key for view in views for key in (*view.pinned, view.baseline_id) if key}
    seen = list_visible_tasks(user, wanted) if wanted else set()
    return [
        {
            "id": view.pk,
            "name": view.name,
            "projectId": view.project_id,
            "query": view.query,
            "columns": view.columns,
            "sort": view.sort,
            "groupBy": view.group_by,
            "pinned": [key for key in view.pinned if key in seen],
            "baseline": view.baseline_id if view.baseline_id in seen else None,
            "mayChange": view.project_id is None or may_change(view.project_id),
        }
        for view in views
    ]
