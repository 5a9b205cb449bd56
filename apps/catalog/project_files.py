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

PREFIX = "files:"
PIECE = 1 << 20


def find(path: str, project_id: str | None) -> str:
    """Return `path` as a version stores it. Raises ApiError and ProblemsError if there are no such files."""
    if project_id is None:
        raise ProblemsError([Problem("path", "DATA_FILES_NO_PROJECT", {"path": path})])
    asked = paths.clean(path.removeprefix(PREFIX), root=True)
    if not _files(project_id, asked):
        raise ApiError(404, "FILE_NOT_FOUND", "path", path=asked)
    return f"{PREFIX}{asked}"


@contextmanager
def brought(source: str, project_id: str, into: Path) -> Iterator[Path]:
    """Copy the files into `scratch` and yield this folder; they are named as below `source`. The folder is deleted when
    the block ends. Raises DataError."""
    shutil.rmtree(into, ignore_errors=True)
    try:
        asked = source.removeprefix(PREFIX)
        files = _files(project_id, asked)
        if not files:
            raise tokenized_data.DataError("DATA_PATH_MISSING", path=source)
        for file in files:
            below = file.path.removeprefix(f"{asked}/") if file.path != asked else file.name
            _copy(file, into / below)
        yield into
    finally:
        shutil.rmtree(into, ignore_errors=True)


def _files(project_id: str, path: str) -> list[File]:
    """Return the file with this path, or all files below it."""
    shown = folders.shown(Project(pk=project_id)).filter(folder=False)
    parent, name = paths.split(path)
    return list(shown.filter(parent=parent, name=name)) or list(folders.below(shown, path).order_by("parent", "name"))


def _copy(file: File, to: Path) -> None:
    to.parent.mkdir(parents=True, exist_ok=True)
    found = hashlib.sha256()
    try:
        with closing(selectors.opened(file)) as content, to.open("wb") as out:
            while piece := content.read(PIECE):
                found.update(piece)
                out.write(piece)
    except (ApiError, OSError) as error:
        why = getattr(error, "code", "") or str(error)
        raise tokenized_data.DataError("DATA_UNREADABLE", path=f"{PREFIX}{file.path}", reason=why) from error
    if found.hexdigest() != file.sha256:
        raise tokenized_data.DataError("DATA_FILES_CHANGED", path=f"{PREFIX}{file.path}")
