"""Checks of data paths: data must lie below FERMI_DATA_ROOTS and must not be one of the platform's own files."""

import os
from pathlib import Path

from django.conf import settings

from apps.common.errors import ProblemsError
from fermi import tokenized_data
from fermi.jobs.spec import Problem
from fermi.jobs.user_paths import absent

OPEN_FOLDERS = ("datasets", "workspace")
"""Folders of the data directory that tasks may read. Beside them lie keys, the database, and files of single tasks."""


def is_allowed(path: Path) -> bool:
    """Return True if data may be read from `path`, which must be real (absolute, links followed)."""
    own = settings.DATA_DIR.resolve()
    if is_open(path):
        return True
    if own.is_relative_to(path) or path.is_relative_to(own):
        return False
    return any(path.is_relative_to(Path(root).resolve()) for root in settings.DATA_ROOTS)


def is_open(path: Path) -> bool:
    """Return True if `path` is in a folder of the data directory that every task may read."""
    return any(path.is_relative_to(folder) for folder in open_folders())


def open_folders() -> list[Path]:
    """Return these folders, as they are configured and with links followed."""
    folders = (settings.DATA_DIR / folder for folder in OPEN_FOLDERS)
    return [one for folder in folders for one in (folder, folder.resolve())]


def find(path: str) -> Path:
    """Return `path` with links followed. Raises ProblemsError if it is not allowed, absent, or neither a file nor a
    folder."""
    source = Path(path)
    if not source.is_absolute():
        raise _problem("DATA_PATH_RELATIVE", path=path)
    source = Path(os.path.realpath(source))
    if not is_allowed(source):
        own = [str(settings.DATA_DIR / folder) for folder in OPEN_FOLDERS]
        raise _problem("DATA_PATH_OUTSIDE", path=path, roots=", ".join([*own, *settings.DATA_ROOTS]))
    if missing := absent(source, Problem("path", "DATA_PATH_MISSING", {"path": path})):
        raise ProblemsError(missing)
    try:
        tokenized_data.refuse_special(source, source.stat().st_mode)
    except tokenized_data.DataError as error:
        raise _problem(error.code, path=path) from error
    return source


def _problem(code: str, **params: str) -> ProblemsError:
    return ProblemsError([Problem("path", code, params)])
