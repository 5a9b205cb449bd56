"""Alerts: tasks."""

from datetime import timedelta
from typing import Any

from django.db.models import F

from apps.overview.attention.entries import Kind, Looked, Rows, entry
from apps.overview.queue_wait import WAITING
from apps.training.models import Finding
from apps.training.presenters import task_presenter
from apps.training.states import ACTIVE, State
from fermi.diagnosis import Level as Severity
from fermi.diagnosis import hangs
from fermi.engines.check_results import Level

LONG = timedelta(hours=1)
"""Wait after which a task is listed."""
LATELY = timedelta(days=1)

_COLUMNS = ("id", "name", "state_since", *task_presenter.WHY)


def _hung(looked: Looked) -> Rows:
    """Return hang findings that need an action; findings of severity info are left out."""
    rows = Finding.objects.filter(code__in=hangs.CODES, until=None, task__state__in=ACTIVE, attempt=F("task__attempt"))
    rows = rows.exclude(level=Severity.INFO)
    rows = looked.scope.of_projects(rows, "task__project").order_by("since", "pk")
    rows = rows.filter(task__owner=looked.scope.user) if looked.scope.mine else rows
    return rows.values("task_id", "task__name", "code", "params", "since")


def _finding(row: dict[str, Any]) -> dict[str, Any]:
    said = task_presenter.warning(row["code"], row["params"])
    words = said["message"], said["hint"]
    return entry("task", row["task_id"], row["task__name"], row["since"], words, f"/training/{row['task_id']}")


def _failed(looked: Looked) -> Rows:
    rows = looked.scope.tasks().filter(state=State.FAILED, ended_at__gte=looked.moment - LATELY)
    return rows.order_by("-ended_at", "pk").values(*_COLUMNS)


def _waits(looked: Looked) -> Rows:
    rows = looked.scope.tasks().filter(state__in=WAITING, paused_at=None, state_since__lte=looked.moment - LONG)
    return rows.order_by("state_since", "pk").values(*_COLUMNS)


def _task(row: dict[str, Any]) -> dict[str, Any]:
    why = task_presenter.why(row) or {"message": "", "hint": ""}
    words = why["message"], why["hint"]
    return entry("task", row["id"], row["name"], row["state_since"], words, f"/training/{row['id']}")


KINDS = (
    Kind("task_hung", Level.FAIL, _hung, _finding, owned=True),
    Kind("task_failed", Level.WARN, _failed, _task, owned=True),
    Kind("task_waits", Level.WARN, _waits, _task, owned=True),
)
