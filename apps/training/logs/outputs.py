"""Scans outputs of tasks until the tasks have ended, and locates checkpoints for download."""

from pathlib import Path

from django.conf import settings

from apps.common.errors import ApiError
from apps.files.services import outputs
from apps.training.models import Checkpoint, Task
from apps.training.states import FINAL_STATES
from fermi.engines.safe_tree import SafeTree
from fermi.jobs.user_paths import CHECKPOINTS_FOLDER, OUTPUTS_FOLDER, TREE_FOLDER, TREES_FOLDER


def update_outputs() -> None:
    """Scan the outputs that are due; delete those whose tasks are gone."""
    rows = list(outputs.list_due_outputs())
    states = dict(Task.objects.filter(pk__in=[row.task for row in rows]).values_list("pk", "state"))
    for row in rows:
        if row.task in states:
            outputs.update_outputs(row, ended=states[row.task] in FINAL_STATES)
        else:
            outputs.delete_outputs(row.project_id, row.task)


def locate_checkpoint(task: Task, path: str) -> tuple[SafeTree, str]:
    """Return a folder of the task and the path in it of a checkpoint that its script announced. Links there are not
    followed. Raises ApiError 404 for an unknown checkpoint and 409 for one outside of the task's folders."""
    if not Checkpoint.objects.filter(task=task, path=path).exists():
        raise ApiError(404, "CHECKPOINT_NOT_FOUND", "path", path=path)
    for top in (settings.DATA_DIR, settings.DATA_DIR.resolve()):
        tree = Path(top, TREES_FOLDER, task.pk, TREE_FOLDER)
        for own in (Path(top, CHECKPOINTS_FOLDER, task.pk), tree, Path(top, OUTPUTS_FOLDER, task.pk)):
            if own in Path(path).parents:
                return SafeTree(own), str(Path(path).relative_to(own))
    raise ApiError(409, "CHECKPOINT_ELSEWHERE", "path", path=path)
