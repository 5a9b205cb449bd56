"""Where data may be made from: below FERMI_DATA_ROOTS, and never from the platform's own files."""

import os
from pathlib import Path

from django.conf import settings

from apps.common.errors import ProblemsError
from fermi import tokenized_data
from fermi.jobs.spec import Problem
from fermi.jobs.user_paths import absent

OPEN_FOLDERS = ("datasets", "workspace")
"""Of the data directory. Beside them lie its keys, its database, and what belongs to single tasks."""


def is_allowed(path: Path) -> bool:
    """`path` is real: absolute, links followed."""
    own = settings.DATA_DIR.resolve()
    if is_open(path):
        return True
    if own.is_relative_to(path) or path.is_relative_to(own):
        return False
    return any(path.is_relative_to(Path(root).resolve()) for root in settings.DATA_ROOTS)


def is_open(path: Path) -> bool:
    """Whether it is in a folder of the data directory that every task may read."""
    return any(path.is_relative_to(folder) for folder in open_folders())


def open_folders() -> list[Path]:
    """Return those folders, as they are written and as links lead now."""
    folders = (settings.DATA_DIR / folder for folder in OPEN_FOLDERS)
    return [one for folder in folders for one in (folder, folder.resolve())]


def find(path: str) -> Path:
    """`path` on the server, links followed. Raises ProblemsError where it may not be used, is absent, or is neither a
    file nor a folder."""
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
