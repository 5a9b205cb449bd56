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
from apps.training.core import predecessors
from apps.training.models import Attempt, Task
from apps.training.services import delete
from apps.training.states import ACTIVE_STATES, FINAL_STATES, TaskKind

log = logging.getLogger(__name__)

BATCH_SIZE = 50
MAX_DELETED_PER_ROUND = 500
"""Most tasks deleted in one round; the next one comes in minutes."""


def delete_expired_tasks() -> int:
    """Delete expired tasks, each in a transaction of its own, and return how many. Does nothing if no retention time is
    set."""
    if not (days := settings.TASKS_KEEP_DAYS):
        return 0
    before, removed, kept = now() - timedelta(days=days), 0, set[str]()
    resumed = _list_resumed_folders()
    while removed < MAX_DELETED_PER_ROUND:
        tasks = list(
            _query_expired(before).exclude(pk__in=kept).select_related("cluster").order_by("ended_at")[:BATCH_SIZE]
        )
        if not tasks or len(kept) >= MAX_DELETED_PER_ROUND:
            return removed
        needed = _find_needed(tasks, resumed)
        for task in tasks:
            if task.pk not in needed and _remove_expired(task, days):
                removed += 1
            else:
                kept.add(task.pk)
    return removed


def _query_expired(before: datetime) -> QuerySet[Task]:
    """Return expired tasks that stand by themselves, as runs made for a task are deleted with it; without tasks whose
    traces or runs are not finished."""
    alone = (
        Q(kind=TaskKind.TRAINING)
        | Q(kind=TaskKind.PREFLIGHT, preflight__before=None)
        | Q(kind=TaskKind.DRILL, drill__task=None)
    )
    rows = Task.objects.filter(alone, state__in=FINAL_STATES, ended_at__lt=before)
    sent = rows.filter(trace_exports__due_at__isnull=False)
    runs = rows.filter(Q(stage__run__state__in=ACTIVE_STATES) | Q(drills__run__state__in=ACTIVE_STATES))
    return rows.exclude(pk__in=sent.values("pk")).exclude(pk__in=runs.values("pk"))


def _list_resumed_folders() -> set[str]:
    """Return the folders whose checkpoints other tasks resume from, or will when they start."""
    began = Attempt.objects.filter(number=1).exclude(resume_from="").values_list("resume_from", flat=True)
    waiting = Task.objects.filter(state__in=ACTIVE_STATES, attempt=0).values_list("spec__resume_from", flat=True)
    return {str(above) for path in {*began, *waiting} if path for above in PurePath(path).parents}


def _find_needed(tasks: list[Task], resumed: set[str]) -> set[str]:
    """Return the tasks whose checkpoints others resume from, those whose environments still exist, and those that
    active tasks came after."""
    awaited = predecessors.list_awaited([task.pk for task in tasks])
    hosted = Hosted.objects.filter(task__in=[task.pk for task in tasks]).values_list("task", flat=True)
    return {
        *hosted,
        *awaited,
        *(
            task.pk for task in tasks
            if resumed.intersection(delete.list_resumable_folders(task))
        ),
    }  # fmt: skip


def _remove_expired(task: Task, days: int) -> bool:
    """Delete the task; return False, and log the error, if that failed, so that the others are still deleted."""
    try:
        about = {"name": task.name, "days": days}
        delete.remove_task(
            task, lambda: audit.record_event(None, "task.expire", task.pk, project=task.project_id, **about)
        )
    except Exception:
        log.exception("task %s stays; it is tried again", task.pk)
        return False
    return True
