"""Checks of data paths: data must lie below FERMI_DATA_ROOTS and must not be one of the platform's own files."""

import os
from pathlib import Path

from django.conf import settings

from apps.common.errors import ProblemsError
from fermi import tokenized_data
from fermi.jobs.spec import Problem
from fermi.jobs.user_paths import find_missing_path

OPEN_FOLDERS = ("datasets", "workspace")
"""Folders of the data directory that tasks may read. Beside them lie keys, the database, and files of single tasks."""


def is_allowed(path: Path) -> bool:
    """Return True if data may be read from `path`, which must be real (absolute, links followed)."""
    own = settings.DATA_DIR.resolve()
    if is_in_open_folder(path):
        return True
    if own.is_relative_to(path) or path.is_relative_to(own):
        return False
    return any(path.is_relative_to(Path(root).resolve()) for root in settings.DATA_ROOTS)


def is_in_open_folder(path: Path) -> bool:
    """Return True if `path` is in a folder of the data directory that every task may read."""
    return any(path.is_relative_to(folder) for folder in list_open_folders())


def list_open_folders() -> list[Path]:
    """Return these folders, as they are configured and with links followed."""
    folders = (settings.DATA_DIR / folder for folder in OPEN_FOLDERS)
    return [one for folder in folders for one in (folder, folder.resolve())]


def resolve_path(path: str) -> Path:
    """Return `path` with links followed. Raises ProblemsError if it is not allowed, absent, or neither a file nor a
    folder."""
    source = Path(path)
    if not source.is_absolute():
        raise _make_problem_error("DATA_PATH_RELATIVE", path=path)
    source = Path(os.path.realpath(source))
    if not is_allowed(source):
        own = [str(settings.DATA_DIR / folder) for folder in OPEN_FOLDERS]
        raise _make_problem_error("DATA_PATH_OUTSIDE", path=path, roots=", ".join([*own, *settings.DATA_ROOTS]))
    if missing := find_missing_path(source, Problem("path", "DATA_PATH_MISSING", {"path": path})):
        raise ProblemsError(missing)
    try:
        tokenized_data.reject_special_file(source, source.stat().st_mode)
    except tokenized_data.DataError as error:
        raise _make_problem_error(error.code, path=path) from error
    return source


def _make_problem_error(code: str, **params: str) -> ProblemsError:
    return ProblemsError([Problem("path", code, params)])
