"""Notifies users about tasks: state changes, hangs and long waits."""

from collections.abc import Mapping
from typing import Any

from apps.common.clock import now
from apps.notices.patience import Patience
from apps.notices.services.incidents import open_params, over, tell
from apps.training.models import Finding, Task
from apps.training.states import FINAL, Kind, State
from apps.training.states.reasons import Reason
from fermi.diagnosis.hangs import CODES

AT_ONCE = 500
"""Most waiting tasks that one pass notifies about; the others follow in the next pass."""
_PASSING = ("task_hung", "task_waits", "task_restarted")


def moved(task: Task, to: State, reason: str, params: Mapping[str, Any]) -> None:
    """Notify about a change of state. Call it in the transaction that changes it."""
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
        over(task.pk, *_PASSING)


def hangs(task_id: str, code: str, params: Mapping[str, Any]) -> None:
    """Notify about a finding that may keep the task from continuing."""
    if code in CODES and (task := Task.trainings.filter(pk=task_id).first()):
        _tell("task_hung", "NOTICE_TASK_HUNG", task, code, params)


def goes_on(task_id: str, code: str) -> None:
    """Resolve the hang notification once no hang finding of the task is open."""
    if code in CODES and not Finding.objects.filter(task=task_id, code__in=CODES, until=None).exists():
        over(task_id, "task_hung")


def look() -> None:
    """Notify about tasks that wait longer than their recipients' thresholds, and resolve those that no longer wait.
    Writes only when a notification has to be sent or resolved."""
    moment, patience = now(), Patience()
    told = open_params("task_waits", "seconds")
    in_line = Task.trainings.filter(state=State.QUEUED, paused_at=None, in_line_at__isnull=False).order_by("in_line_at")
    waits, news = set(), []
    for key, since, project, owner in in_line.values_list("pk", "in_line_at", "project", "owner"):
        seconds = (moment - (since or moment)).total_seconds()
        before = told.get(key, 0)
        if seconds >= before:  # else it has left the queue and entered it again
            waits.add(key)
            if patience.reached(project, owner, seconds) > before:
                news.append(key)
    for key in told.keys() - waits:
        over(key, "task_waits")
    for task in in_line.filter(pk__in=news[:AT_ONCE]):
        seconds = int((moment - (task.in_line_at or moment)).total_seconds())
        long = {"hours": seconds // 3600} if seconds >= 3600 else {"minutes": seconds // 60}
        _tell("task_waits", "NOTICE_TASK_WAITS", task, task.reason or "ENVIRONMENTS_BUSY", task.reason_params,
              counts=False, seconds=seconds, **long)  # fmt: skip


def _tell(
    kind: str, code: str, task: Task, why: str, about: Mapping[str, Any], *, counts: bool = True, **more: Any
) -> None:
    """Write the notification of `kind` about the task. `why`, `about`: code and parameters of the nested reason."""
    params = {"name": task.name, "task": task.pk, "why": {"code": why, "params": dict(about)}, **more}
    link = f"/training/{task.pk}"
    tell(kind, task.pk, code, params, project=task.project_id, owner=task.owner_id, link=link, counts=counts)
