"""Deletes ended tasks that are older than the retention time, with everything that belongs to them. Their costs stay in
the ledger."""

import logging
from datetime import datetime, timedelta
from pathlib import PurePath

from django.conf import settings
from django.db.models import Q, QuerySet

from apps.accounts import audit
from apps.common.clock import now
from apps.environments.models import Hosted
from apps.training.models import Attempt, Task
from apps.training.services import delete
from apps.training.states import ACTIVE, FINAL, Kind
from fermi.jobs.user_paths import TREES

log = logging.getLogger(__name__)

AT_ONCE = 50
MOST = 500
"""Most tasks deleted in one round; the next one comes in minutes."""


def forget() -> int:
    """Delete expired tasks, each in a transaction of its own, and return how many. Does nothing if no retention time is
    set."""
    if not (days := settings.TASKS_KEEP_DAYS):
        return 0
    before, removed, kept = now() - timedelta(days=days), 0, set[str]()
    resumed = _resumed_from()
    while removed < MOST:
        tasks = list(_ended(before).exclude(pk__in=kept).select_related("cluster").order_by("ended_at")[:AT_ONCE])
        if not tasks or len(kept) >= MOST:
            return removed
        needed = _needed(tasks, resumed)
        for task in tasks:
            if task.pk not in needed and _remove(task, days):
                removed += 1
            else:
                kept.add(task.pk)
    return removed


def _ended(before: datetime) -> QuerySet[Task]:
    """Return expired tasks that stand by themselves, as runs made for a task are deleted with it; without tasks whose
    traces or runs are not finished."""
    alone = (
        Q(kind=Kind.TRAINING) | Q(kind=Kind.PREFLIGHT, preflight__before=None) | Q(kind=Kind.DRILL, drill__task=None)
    )
    rows = Task.objects.filter(alone, state__in=FINAL, ended_at__lt=before)
    sent = rows.filter(trace_exports__due_at__isnull=False)
    runs = rows.filter(Q(stage__run__state__in=ACTIVE) | Q(drills__run__state__in=ACTIVE))
    return rows.exclude(pk__in=sent.values("pk")).exclude(pk__in=runs.values("pk"))


def _resumed_from() -> set[str]:
    """Return the folders whose checkpoints other tasks resume from, or will when they start."""
    began = Attempt.objects.filter(number=1).exclude(resume_from="").values_list("resume_from", flat=True)
    waiting = Task.objects.filter(state__in=ACTIVE, attempt=0).values_list("spec__resume_from", flat=True)
    return {str(above) for path in {*began, *waiting} if path for above in PurePath(path).parents}


def _needed(tasks: list[Task], resumed: set[str]) -> set[str]:
    """Return the tasks whose checkpoints others resume from, and those whose environments still exist."""
    hosted = Hosted.objects.filter(task__in=[task.pk for task in tasks]).values_list("task", flat=True)
    return {
        *hosted,
        *(
            task.pk for task in tasks
            if {str(task.spec.get("checkpoint_dir")), str(settings.DATA_DIR / TREES / task.pk)} & resumed
        ),
    }  # fmt: skip


def _remove(task: Task, days: int) -> bool:
    """Delete the task; return False, and log the error, if that failed, so that the others are still deleted."""
    try:
        about = {"name": task.name, "days": days}
        delete.remove(task, lambda: audit.record(None, "task.expire", task.pk, project=task.project_id, **about))
    except Exception:
        log.exception("task %s stays; it is tried again", task.pk)
        return False
    return True
