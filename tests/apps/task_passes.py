"""What the platform's worker and its log watcher do for tasks, one pass at a time in the test's own process."""

from apps.common.clock import now
from apps.training.logs.ingest import LogReader
from apps.training.models import Task
from apps.training.reconcile import reconciler
from apps.training.states import FINAL_STATES, STATES_WITH_ATTEMPT


def advance_tasks() -> bool:
    """Reconcile all tasks that are not over, and read their logs; return whether all were over before."""
    going_on = Task.objects.exclude(state__in=FINAL_STATES)
    going_on.update(due_at=now())
    for task in list(going_on):
        reconciler.reconcile_tasks(task.pk)
        task.refresh_from_db()
        if task.state in STATES_WITH_ATTEMPT:
            LogReader(task, task.attempt).read()
    return not going_on.exists()
