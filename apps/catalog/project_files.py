"""Data made from files of a project: `files:<path>` in place of a path on the server.

A version uses the files as they were when it was prepared: they are copied next to its token files and verified, so
later changes of the files change no version.
"""

import hashlib
import shutil
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from apps.accounts.models import Project
from apps.common.errors import ApiError, ProblemsError
from apps.files import paths, selectors
from apps.files.models import File
from apps.files.services import folders
from fermi import tokenized_data
from fermi.jobs.spec import Problem

SOURCE_PREFIX = "files:"
CHUNK_BYTES = 1 << 20


def resolve_source(path: str, project_id: str | None) -> str:
    """Return `path` as a version stores it. Raises ApiError and ProblemsError if there are no such files."""
    if project_id is None:
        raise ProblemsError([Problem("path", "DATA_FILES_NO_PROJECT", {"path": path})])
    asked = paths.normalize_path(path.removeprefix(SOURCE_PREFIX), root=True)
    if not _list_files(project_id, asked):
        raise ApiError(404, "FILE_NOT_FOUND", "path", path=asked)
    return f"{SOURCE_PREFIX}{asked}"


@contextmanager
def copy_temporarily(source: str, project_id: str, scratch: Path) -> Iterator[Path]:
    """Copy the files into `scratch` and yield this folder; they are named as below `source`. The folder is deleted when
    the block ends. Raises DataError."""
    shutil.rmtree(scratch, ignore_errors=True)
    try:
        asked = source.removeprefix(SOURCE_PREFIX)
        files = _list_files(project_id, asked)
        if not files:
            raise tokenized_data.DataError("DATA_PATH_MISSING", path=source)
        for file in files:
            below = file.path.removeprefix(f"{asked}/") if file.path != asked else file.name
            _copy_file(file, scratch / below)
        yield scratch
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _list_files(project_id: str, path: str) -> list[File]:
    """Return the file with this path, or all files below it."""
    shown = folders.list_visible_files(Project(pk=project_id)).filter(folder=False)
    parent, name = paths.split_path(path)
    return list(shown.filter(parent=parent, name=name)) or list(
        folders.filter_below(shown, path).order_by("parent", "name")
    )


def _copy_file(file: File, to: Path) -> None:
    to.parent.mkdir(parents=True, exist_ok=True)
    found = hashlib.sha256()
    try:
        with closing(selectors.open_file(file)) as content, to.open("wb") as out:
            while piece := content.read(CHUNK_BYTES):
                found.update(piece)
                out.write(piece)
    except (ApiError, OSError) as error:
        why = getattr(error, "code", "") or str(error)
        raise tokenized_data.DataError("DATA_UNREADABLE", path=f"{SOURCE_PREFIX}{file.path}", reason=why) from error
    if found.hexdigest() != file.sha256:
        raise tokenized_data.DataError("DATA_FILES_CHANGED", path=f"{SOURCE_PREFIX}{file.path}")
