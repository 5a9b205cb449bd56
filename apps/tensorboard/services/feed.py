"""What the program of a TensorBoard reads (`fermi.tensorboard.program`): the event files of its tasks, and the stored
points of those that have none. Nothing else of a task can be read this way."""

import math
import unicodedata
from collections import Counter
from collections.abc import Iterable
from datetime import timedelta
from typing import Any

from apps.common.clock import now
from apps.common.errors import ApiError
from apps.files import paths
from apps.files import selectors as files
from apps.files.services import folders, outputs
from apps.files.store import read_chunks
from apps.tensorboard.models import TensorBoard
from apps.training.public import FINAL_STATES, MetricPoint, Task, apply_patterns

EVENTS_MARK = "events.out.tfevents."
MAX_NAMES = 20_000
"""Names that are read of each of a task's two folders."""
MAX_FILES = 1_000
MAX_PART_BYTES = 4 << 20
MAX_POINTS = 5_000
MAX_NAME_BYTES = 150
SETTLED_AFTER = timedelta(minutes=2)
"""After its end, points and files of a task may still come."""


def list_tasks(board: TensorBoard) -> list[dict[str, Any]]:
    """Return the tasks that still exist, in the order in which they were given: `folder` is the name under which each
    is shown, `isFinal` says that nothing of it changes any more."""
    found = {task.pk: task for task in _filter_tasks(board).only("pk", "name", "state", "ended_at")}
    tasks = [found[key] for key in board.tasks if key in found]
    names = _make_names(tasks)
    settled = now() - SETTLED_AFTER
    return [
        {
            "id": task.pk,
            "folder": names[task.pk],
            "isFinal": task.state in FINAL_STATES and (task.ended_at is None or task.ended_at < settled),
        }
        for task in tasks
    ]


def find_task(board: TensorBoard, task_id: str) -> Task:
    """Return a task that is shown. Raises ApiError 404 for any other."""
    task = _filter_tasks(board).select_related("project").filter(pk=task_id).first() if task_id in board.tasks else None
    if task is None:
        raise ApiError(404, "NOT_FOUND")
    return task


def list_event_files(task: Task) -> list[dict[str, Any]]:
    """Return the event files that the task has written, with their sizes in bytes."""
    if outputs.is_stored(task.project, task.pk):
        rows = folders.list_visible_files(task.project, task.pk).filter(folder=False, name__contains=EVENTS_MARK)
        return [{"path": row.path, "size": row.size} for row in rows.order_by("parent", "name")[:MAX_FILES]]
    found: list[dict[str, Any]] = []
    for entry in outputs.open_tree(task.pk, MAX_NAMES).walk():
        if not entry.folder and EVENTS_MARK in entry.name and paths.is_normalized(entry.path):
            found.append({"path": entry.path, "size": entry.size})
            if len(found) == MAX_FILES:
                break
    return found


def read_part(task: Task, path: str, begin: int) -> bytes:
    """Return an event file from byte `begin` on, at most MAX_PART_BYTES; nothing behind its end. Raises ApiError
    404."""
    if EVENTS_MARK not in path.rpartition("/")[2] or not paths.is_normalized(path):
        raise ApiError(404, "NOT_FOUND", "path")
    if outputs.is_stored(task.project, task.pk):
        row = folders.get_file(task.project, path, task=task.pk)
        if row.folder:
            raise ApiError(404, "NOT_FOUND", "path")
        size, file = row.size, files.open_file(row)
    else:
        tree = outputs.open_tree(task.pk)
        try:
            size, file = tree.get_entry(path).size, tree.open(path)
        except (OSError, ValueError):
            raise ApiError(404, "NOT_FOUND", "path") from None
    if begin >= size:
        file.close()
        return b""
    return b"".join(read_chunks(file, begin, min(size - begin, MAX_PART_BYTES)))


def list_points(task: Task, after: int) -> dict[str, Any]:
    """Return stored points of the leading rank behind the point `after`, as users see them (`apply_patterns`); `last`
    is where to go on, `more` says that there may be further ones."""
    columns = ("id", "attempt", "step", "at", "source", "values", "pattern")
    rows = list(
        MetricPoint.objects.filter(task=task, rank=0, pk__gt=after).order_by("pk").values(*columns)[:MAX_POINTS]
    )
    points = [
        {
            "id": row["id"],
            "attempt": row["attempt"],
            "step": row["step"],
            "time": row["at"].timestamp(),
            "source": row["source"],
            "values": {name: value for name, value in row["values"].items() if _is_finite(value)},
        }
        for row in apply_patterns(task.pk, rows)
    ]
    last = rows[-1]["id"] if rows else after
    return {"points": [one for one in points if one["values"]], "last": last, "more": len(rows) == MAX_POINTS}


def _filter_tasks(board: TensorBoard) -> Any:
    """Return the rows of its tasks, all of which are of the environment's project."""
    return Task.objects.filter(pk__in=board.tasks, project_id=board.environment.project_id)


def _make_names(tasks: Iterable[Task]) -> dict[str, str]:
    """Return a folder's name for each task: the task's name, with its id where several have the same one."""
    names = {task.pk: _clean_name(task.name) for task in tasks}
    count = Counter(name.casefold() for name in names.values())
    return {
        key: f"{name} {key}".strip() if count[name.casefold()] > 1 or not name else name for key, name in names.items()
    }


def _clean_name(name: str) -> str:
    plain = "".join("_" if char in "/\\" or unicodedata.category(char)[0] == "C" else char for char in name)
    return plain.strip(" .").encode()[:MAX_NAME_BYTES].decode(errors="ignore").strip(" .")


def _is_finite(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
