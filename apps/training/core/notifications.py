"""Notifies users about tasks: state changes, hangs and long waits."""

from collections.abc import Mapping
from typing import Any

from apps.common.clock import now
from apps.notices.selectors import WaitThresholds
from apps.notices.services.incidents import open_incident, read_open_params, resolve_incidents
from apps.training.models import Finding, Task
from apps.training.states import FINAL_STATES, TaskKind, TaskState
from apps.training.states.reasons import TaskReason
from fermi.diagnosis.hangs import CODES

MAX_NOTIFIED_PER_PASS = 500
"""Most waiting tasks that one pass notifies about; the others follow in the next pass."""
_RESOLVABLE_KINDS = ("task_hung", "task_waits", "task_restarted")


def notify_state_change(task: Task, to: TaskState, reason: str, params: Mapping[str, Any]) -> None:
    """Notify about a change of state. Call it in the transaction that changes it."""
    if task.kind != TaskKind.TRAINING:
        return
    if to is TaskState.QUEUED and reason == TaskReason.RESTARTING:
        cause, number = params.get("cause", ""), params.get("next")
        _notify("task_restarted", "NOTICE_TASK_RESTARTED", task, cause, params, next=number)
    elif to is TaskState.FAILED:
        _notify("task_failed", "NOTICE_TASK_FAILED", task, reason, params)
    elif to in FINAL_STATES:
        code = "NOTICE_TASK_STOPPED" if to is TaskState.STOPPED else "NOTICE_TASK_ENDED"
        _notify("task_ended", code, task, reason, params)
    if to in FINAL_STATES:
        resolve_incidents(task.pk, *_RESOLVABLE_KINDS)


def notify_hang(task_id: str, code: str, params: Mapping[str, Any]) -> None:
    """Notify about a finding that may keep the task from continuing."""
    if code in CODES and (task := Task.trainings.filter(pk=task_id).first()):
        _notify("task_hung", "NOTICE_TASK_HUNG", task, code, params)


def resolve_hang(task_id: str, code: str) -> None:
    """Resolve the hang notification once no hang finding of the task is open."""
    if code in CODES and not Finding.objects.filter(task=task_id, code__in=CODES, until=None).exists():
        resolve_incidents(task_id, "task_hung")


def notify_long_waits() -> None:
    """Notify about tasks that wait longer than their recipients' thresholds, and resolve those that no longer wait.
    Writes only when a notification has to be sent or resolved."""
    moment, patience = now(), WaitThresholds()
    told = read_open_params("task_waits", "seconds")
    in_line = Task.trainings.filter(state=TaskState.QUEUED, paused_at=None, in_line_at__isnull=False).order_by(
        "in_line_at"
    )
    waits, news = set(), []
    for key, since, project, owner in in_line.values_list("pk", "in_line_at", "project", "owner"):
        seconds = (moment - (since or moment)).total_seconds()
        before = told.get(key, 0)
        if seconds >= before:  # else it has left the queue and entered it again
            waits.add(key)
            if patience.reached(project, owner, seconds) > before:
                news.append(key)
    for key in told.keys() - waits:
        resolve_incidents(key, "task_waits")
    for task in in_line.filter(pk__in=news[:MAX_NOTIFIED_PER_PASS]):
        seconds = int((moment - (task.in_line_at or moment)).total_seconds())
        long = {"hours": seconds // 3600} if seconds >= 3600 else {"minutes": seconds // 60}
        _notify("task_waits", "NOTICE_TASK_WAITS", task, task.reason or "ENVIRONMENTS_BUSY", task.reason_params,
              counts=False, seconds=seconds, **long)  # fmt: skip


def _notify(
    kind: str, code: str, task: Task, why: str, about: Mapping[str, Any], *, counts: bool = True, **more: Any
) -> None:
    """Write the notification of `kind` about the task. `why`, `about`: code and parameters of the nested reason."""
    params = {"name": task.name, "task": task.pk, "why": {"code": why, "params": dict(about)}, **more}
    link = f"/training/{task.pk}"
    open_incident(
        kind, task.pk, code, params, project=task.project_id, owner=task.owner_id, link=link, counts_again=counts
    )
