"""Scans outputs of tasks until the tasks have ended, and locates checkpoints for download."""

from pathlib import Path

from django.conf import settings

from apps.common.errors import ApiError
from apps.files.services import outputs
from apps.training.models import Checkpoint, Task
from apps.training.states import FINAL
from fermi.engines.safe_tree import Tree
from fermi.jobs.user_paths import CHECKPOINTS, TREE, TREES


def sweep() -> None:
    """Scan the outputs that are due; delete those whose tasks are gone."""
    rows = list(outputs.due())
    states = dict(Task.objects.filter(pk__in=[row.task for row in rows]).values_list("pk", "state"))
    for row in rows:
        if row.task in states:
            outputs.settle(row, ended=states[row.task] in FINAL)
        else:
            outputs.forget(row.project_id, row.task)


def checkpoint(task: Task, path: str) -> tuple[Tree, str]:
    """Return a folder of the task and the path in it of a checkpoint that its script announced. Links there are not
    followed. Raises ApiError 404 for an unknown checkpoint and 409 for one outside of the task's folders."""
    if not Checkpoint.objects.filter(task=task, path=path).exists():
        raise ApiError(404, "CHECKPOINT_NOT_FOUND", "path", path=path)
    for top in (settings.DATA_DIR, settings.DATA_DIR.resolve()):
        for own in (Path(top, CHECKPOINTS, task.pk), Path(top, TREES, task.pk, TREE)):
            if own in Path(path).parents:
                return Tree(own), str(Path(path).relative_to(own))
    raise ApiError(409, "CHECKPOINT_ELSEWHERE", "path", path=path)
