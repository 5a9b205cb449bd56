"""Deletes a task that has ended, with its logs, its checkpoints, its outputs, and the runs made for it."""

import shutil
from collections.abc import Callable

from django.conf import settings
from django.db import transaction
from django.db.models import Q

from apps.files.services import outputs
from apps.training.core.engine_access import build_handle, get_backend
from apps.training.core.tracker_runs import keep_synced
from apps.training.models import Task
from fermi.jobs.user_paths import CHECKPOINTS_FOLDER, TASK_FOLDERS


def list_runs(task: Task) -> list[Task]:
    """Return the task's pre-flight tests and drills."""
    return list(Task.objects.filter(Q(preflight__before=task) | Q(drill__task=task)).select_related("cluster"))


def list_resumable_folders(task: Task) -> list[str]:
    """Return the folders of the task that another one may resume from."""
    folders = [str(settings.DATA_DIR / top / task.pk) for top in TASK_FOLDERS]
    return [*([str(own)] if (own := task.spec.get("checkpoint_dir")) else []), *folders]


def remove_task(task: Task, record: Callable[[], None]) -> None:
    """Delete the task's files, then its rows: a crash in between leaves a task that can be deleted again, never files
    without an owner. `record` is called in the transaction that deletes the rows."""
    runs = list_runs(task)
    keep_synced(task)
    for each in (task, *runs):
        for number in each.attempts.values_list("number", flat=True):
            get_backend(each.cluster).delete_attempt(build_handle(each, number))
        for folder in ("logs", CHECKPOINTS_FOLDER):
            shutil.rmtree(settings.DATA_DIR / folder / each.pk, ignore_errors=True)
    outputs.delete_outputs(task.project_id, task.pk)
    with transaction.atomic():
        record()
        for run in runs:
            run.delete()
        task.delete()
