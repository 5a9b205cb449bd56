"""Alerts: tasks."""

from datetime import timedelta
from typing import Any

from django.db.models import F

from apps.overview.attention.entries import AlertContext, AlertKind, Rows, build_alert
from apps.overview.queue_wait import WAITING_STATES
from apps.training.public import ACTIVE_STATES, REASON_COLUMNS, Finding, TaskState, explain_task, serialize_warning
from fermi.diagnosis import Level as Severity
from fermi.diagnosis import hangs
from fermi.engines.check_results import CheckLevel

LONG_WAIT = timedelta(hours=1)
"""Wait after which a task is listed."""
SHOW_FAILED_FOR = timedelta(days=1)

_COLUMNS = ("id", "name", "state_since", *REASON_COLUMNS)


def _list_hung(context: AlertContext) -> Rows:
    """Return hang findings that need an action; findings of severity info are left out."""
    rows = Finding.objects.filter(
        code__in=hangs.CODES, until=None, task__state__in=ACTIVE_STATES, attempt=F("task__attempt")
    )
    rows = rows.exclude(level=Severity.INFO)
    rows = context.scope.filter_projects(rows, "task__project").order_by("since", "pk")
    rows = rows.filter(task__owner=context.scope.user) if context.scope.mine else rows
    return rows.values("task_id", "task__name", "code", "params", "since")


def _describe_finding(row: dict[str, Any]) -> dict[str, Any]:
    said = serialize_warning(row["code"], row["params"])
    words = said["message"], said["hint"]
    return build_alert("task", row["task_id"], row["task__name"], row["since"], words, f"/training/{row['task_id']}")


def _list_failed(context: AlertContext) -> Rows:
    rows = context.scope.tasks().filter(state=TaskState.FAILED, ended_at__gte=context.moment - SHOW_FAILED_FOR)
    return rows.order_by("-ended_at", "pk").values(*_COLUMNS)


def _list_waiting(context: AlertContext) -> Rows:
    rows = context.scope.tasks().filter(
        state__in=WAITING_STATES, paused_at=None, state_since__lte=context.moment - LONG_WAIT
    )
    return rows.order_by("state_since", "pk").values(*_COLUMNS)


def _describe_task(row: dict[str, Any]) -> dict[str, Any]:
    why = explain_task(row) or {"message": "", "hint": ""}
    words = why["message"], why["hint"]
    return build_alert("task", row["id"], row["name"], row["state_since"], words, f"/training/{row['id']}")


ALERT_KINDS = (
    AlertKind("task_hung", CheckLevel.FAIL, _list_hung, _describe_finding, owned=True),
    AlertKind("task_failed", CheckLevel.WARN, _list_failed, _describe_task, owned=True),
    AlertKind("task_waits", CheckLevel.WARN, _list_waiting, _describe_task, owned=True),
)
