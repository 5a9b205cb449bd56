"""Deletes a task that has ended, with its logs, its checkpoints, its outputs, and the runs made for it."""

import shutil
from collections.abc import Callable

from django.conf import settings
from django.db import transaction
from django.db.models import Q

from apps.files.services import outputs
from apps.training.core.engine_access import backend_for, handle_for
from apps.training.models import Task
from fermi.jobs.user_paths import CHECKPOINTS


def runs_of(task: Task) -> list[Task]:
    """Return the task's pre-flight tests and drills."""
    return list(Task.objects.filter(Q(preflight__before=task) | Q(drill__task=task)).select_related("cluster"))


def remove(task: Task, record: Callable[[], None]) -> None:
    """Delete the task's files, then its rows: a crash in between leaves a task that can be deleted again, never files
    without an owner. `record` is called in the transaction that deletes the rows."""
    runs = runs_of(task)
    for each in (task, *runs):
        for number in each.attempts.values_list("number", flat=True):
            backend_for(each.cluster).forget(handle_for(each, number))
        for folder in ("logs", CHECKPOINTS):
            shutil.rmtree(settings.DATA_DIR / folder / each.pk, ignore_errors=True)
    outputs.forget(task.project_id, task.pk)
    with transaction.atomic():
        record()
        for run in runs:
            run.delete()
        task.delete()
