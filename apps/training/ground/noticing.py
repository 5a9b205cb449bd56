"""What people are told of tasks."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from apps.common.clock import now
from apps.notices.services.telling import open_keys, over, tell
from apps.training.models import Finding, Task
from apps.training.states import FINAL, Kind, State
from apps.training.states.reasons import Reason
from fermi.launch.diagnosis.hangs import CODES

WAITS = timedelta(hours=1)
"""A task that has waited for its environments for so long is worth a word."""
MOST = 500
_PASSING = ("task_hung", "task_waits", "task_restarted")


def moved(task: Task, to: State, reason: str, params: Mapping[str, Any]) -> None:
    """To be called in the transaction that moves it."""
    if task.kind != Kind.TRAINING:
        return
    if to is State.QUEUED and reason == Reason.RESTARTING:
        cause, number = params.get("cause", ""), params.get("next")
        _tell("task_restarted", "NOTICE_TASK_RESTARTED", task, cause, params, next=number)
    elif to is State.FAILED:
        _tell("task_failed", "NOTICE_TASK_FAILED", task, reason, params)
    elif to in FINAL:
        code = "NOTICE_TASK_STOPPED" if to is State.STOPPED else "NOTICE_TASK_ENDED"
        _tell("task_ended", code, task, reason, params)
    if to in FINAL:
        for kind in _PASSING:
            over(kind, task.pk)
    elif to is State.STARTING:
        over("task_waits", task.pk)


def hangs(task_id: str, code: str, params: Mapping[str, Any]) -> None:
    """Something was found that may keep it from going on."""
    if code in CODES and (task := Task.trainings.filter(pk=task_id).first()):
        _tell("task_hung", "NOTICE_TASK_HUNG", task, code, params)


def goes_on(task_id: str) -> None:
    """Nothing of the kind is so any more."""
    if not Finding.objects.filter(task=task_id, code__in=CODES, until=None).exists():
        over("task_hung", task_id)


def look() -> None:
    """For what only time tells: tasks that wait."""
    moment = now()
    waiting = Task.trainings.filter(state=State.QUEUED, paused_at=None, in_line_at__lt=moment - WAITS)
    told = open_keys("task_waits")
    found = set()
    for task in waiting.order_by("in_line_at")[:MOST]:
        found.add(task.pk)
        seconds = (moment - (task.in_line_at or moment)).total_seconds()
        hours = int(seconds // 3600)
        _tell("task_waits", "NOTICE_TASK_WAITS", task, task.reason or "ENVIRONMENTS_BUSY", task.reason_params,
              seconds=int(seconds), hours=hours)  # fmt: skip
    for key in told - found:
        over("task_waits", key)


def _tell(kind: str, code: str, task: Task, why: str, about: Mapping[str, Any], **more: Any) -> None:
    params = {"name": task.name, "task": task.pk, "why": {"code": why, "params": dict(about)}, **more}
    tell(kind, task.pk, code, params, project=task.project_id, owner=task.owner_id, link=f"/training/{task.pk}")
