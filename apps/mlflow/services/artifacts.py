"""Artifacts: files in the outputs of a task.

    mlflow-artifacts:/<task>/outputs/…      all outputs of a task that has logged nothing here; is only read
    mlflow-artifacts:/<task>/<run>/…        `mlflow-artifacts/<run>/` in its outputs
    mlflow-artifacts:/<task>/models/<id>/…  `mlflow-artifacts/models/<id>/`

Ranks may write to the folder that these lie in: no step of a path follows a link.
"""

import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Protocol

from django.conf import settings

from apps.accounts.models import Project
from apps.common.errors import ApiError
from apps.files import paths, selectors
from apps.files.services import folders, outputs
from apps.mlflow.callers import Caller
from apps.mlflow.services.runs import FoundRun, find_run
from apps.training.public import Task
from fermi.engines.safe_tree import FOLDER_FLAGS, open_folder_below
from fermi.jobs.user_paths import OUTPUTS_FOLDER

SCHEME, ROOT, ALL = "mlflow-artifacts:/", "mlflow-artifacts", "outputs"
MAX_DEPTH, MAX_LISTED = 30, 10_000
COPY_BYTES = 1 << 20


class SupportsRead(Protocol):
    """What a file's content is read from."""

    def read(self, size: int = -1, /) -> bytes: ...


@dataclass(frozen=True, slots=True)
class ArtifactPlace:
    """A place in a task's outputs. `path`: from their root; `is_written`: the task's ranks may write there."""

    task: Task
    path: str
    is_written: bool


@dataclass(frozen=True, slots=True)
class ListedFile:
    """An entry of a folder; `path` from the root of the artifacts."""

    path: str
    folder: bool
    size: int


def get_run_root(found: FoundRun) -> str:
    """Return the address of a run's artifacts."""
    return f"{SCHEME}{found.task.pk}/{found.row.pk if found.row else ALL}"


def get_model_root(task_id: str, model_id: str) -> str:
    """Return the address of a logged model."""
    return f"{SCHEME}{task_id}/models/{model_id}"


def find_place(caller: Caller, address: str) -> ArtifactPlace:
    """Return what a path below `/mlflow-artifacts/artifacts/` stands for. Raises ApiError 404 and 400."""
    parts = [part for part in address.split("/") if part]
    if len(parts) > MAX_DEPTH or any(part in (".", "..") for part in parts) or len(address) > 4096:
        raise ApiError(400, "MLFLOW_ARTIFACT_PATH", "path", path=address[:200])
    if len(parts) < 2:
        raise ApiError(404, "MLFLOW_ARTIFACT_UNKNOWN", "path", path=address[:200])
    task = find_run(caller, parts[0]).task
    rest = parts[1:]
    if rest[0] == ALL:
        return ArtifactPlace(task, "/".join(rest[1:]), is_written=False)
    if rest[0] == "models":
        return ArtifactPlace(task, "/".join([ROOT, *rest]), is_written=len(rest) > 2)
    if find_run(caller, rest[0]).task.pk != task.pk:
        raise ApiError(404, "MLFLOW_ARTIFACT_UNKNOWN", "path", path=address[:200])
    return ArtifactPlace(task, "/".join([ROOT, *rest]), is_written=len(rest) > 1)


def write_artifact(caller: Caller, address: str, content: SupportsRead) -> None:
    """Store a file in the outputs of the calling ranks' task, in place of one that is there. Raises ApiError."""
    place = find_place(caller, address)
    task = caller.require_task()
    if place.task.pk != task.pk:
        raise ApiError(403, "MLFLOW_OTHER_TASK", "path", run=place.task.pk, task=task.pk)
    if not place.is_written:
        raise ApiError(403, "MLFLOW_OUTPUTS_READ_ONLY", "path", path=address[:200])
    parent, _, name = place.path.rpartition("/")
    temporary = f".upload-{secrets.token_hex(8)}"
    try:
        with _open_outputs(task.pk, parent) as folder:
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            with os.fdopen(os.open(temporary, flags, 0o644, dir_fd=folder), "wb") as file:
                try:
                    shutil.copyfileobj(content, file, COPY_BYTES)
                    file.flush()
                    os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
                except BaseException:
                    os.unlink(temporary, dir_fd=folder)
                    raise
    except OSError as error:
        raise ApiError(409, "MLFLOW_ARTIFACT_NOT_WRITTEN", "path", path=address[:200], why=str(error)[:200]) from error


@contextmanager
def _open_outputs(task_id: str, path: str) -> Iterator[int]:
    root = Path(settings.DATA_DIR, OUTPUTS_FOLDER, task_id)
    root.mkdir(parents=True, exist_ok=True)
    top = os.open(root, FOLDER_FLAGS)
    try:
        with open_folder_below(top, path, make_mode=0o755) as folder:
            yield folder
    finally:
        os.close(top)


def open_artifact(caller: Caller, address: str) -> tuple[BinaryIO, int]:
    """Return a file that is open for reading, and its size in bytes. Raises ApiError 404."""
    place = find_place(caller, address)
    project: Project = place.task.project
    if outputs.is_stored(project, place.task.pk):
        file = folders.get_file(project, paths.normalize_path(place.path), task=place.task.pk)
        if file.folder:
            raise ApiError(404, "MLFLOW_ARTIFACT_UNKNOWN", "path", path=address[:200])
        return selectors.open_file(file), file.size
    tree = outputs.open_tree(place.task.pk)
    try:
        entry = tree.get_entry(place.path)
        if entry.folder:
            raise FileNotFoundError(address)
        return tree.open(place.path), entry.size
    except (OSError, ValueError) as error:
        raise ApiError(404, "MLFLOW_ARTIFACT_UNKNOWN", "path", path=address[:200]) from error


def list_artifacts(caller: Caller, address: str) -> list[ListedFile]:
    """Return the entries of a folder; none where there is no such folder, and of a file, as MLflow's server has it."""
    place = find_place(caller, address)
    project: Project = place.task.project
    if outputs.is_stored(project, place.task.pk):
        try:
            rows = selectors.list_files(project, paths.normalize_path(place.path, root=True), "", place.task.pk)
        except ApiError:
            return []
        return [ListedFile(row.path, row.folder, row.size) for row in rows[:MAX_LISTED]]
    tree = outputs.open_tree(place.task.pk, MAX_LISTED)
    try:
        entries = tree.list_entries(place.path)
    except (OSError, ValueError):
        return []
    return [ListedFile(entry.path, entry.folder, entry.size) for entry in entries]
