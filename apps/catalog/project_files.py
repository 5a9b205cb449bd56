"""Data made from files of a project: `files:<path>` in place of a path on the server.

A version is of what the files were when it was prepared. They are copied, from wherever they lie, next to what is made
of them, and verified; what people do to the files afterwards changes no version.
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
    """`path` as a version keeps it. Raises ApiError and ProblemsError where no such files are there."""
    if project_id is None:
        raise ProblemsError([Problem("path", "DATA_FILES_NO_PROJECT", {"path": path})])
    asked = paths.clean(path.removeprefix(PREFIX), root=True)
    if not _files(project_id, asked):
        raise ApiError(404, "FILE_NOT_FOUND", "path", path=asked)
    return f"{PREFIX}{asked}"


@contextmanager
def brought(source: str, project_id: str, into: Path) -> Iterator[Path]:
    """A folder in which they lie, named as they are below `source`, until the block ends. Raises DataError."""
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
    """The one that has that name, or all below it."""
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
