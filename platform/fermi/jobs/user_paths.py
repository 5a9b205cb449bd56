"""Finds and checks paths that users name, where the platform runs."""

import os
import stat
from pathlib import Path

from fermi.jobs.spec import Problem

CHECKPOINTS_FOLDER = "checkpoints"
"""In the data directory: a folder for each task, which the task may write to and no task may replace."""

OUTPUTS_FOLDER = "outputs"
"""In the data directory: a folder for each task's other outputs."""
TREES_FOLDER, TREE_FOLDER = "trees", "code"
"""In the data directory: a folder for each task that brings code; in it, the folder that its ranks start in."""
TASK_FOLDERS = (CHECKPOINTS_FOLDER, TREES_FOLDER, OUTPUTS_FOLDER)
"""Folders of the data directory with a folder for each task, in which its checkpoints may be."""
HOMES_FOLDER = "homes"
"""In the data directory: a folder for each project, which is HOME of its tasks and keeps what libraries cache there."""
CACHE_FOLDER = ".cache"
"""In a project's HOME: what libraries cache."""
FILES_FOLDER = "files"
"""In the data directory, unless they lie elsewhere: a folder for each project, which its tasks may read."""


def find_task_folder(data_dir: Path, path: str) -> Path | None:
    """Return the folder of the task whose checkpoints `path` names, by its spelling: what a task that resumes from
    `path` may read. Links are not followed: a script can change those in its folder at any time, but not the folder
    itself. None where the path is in no task's folder."""
    clean = Path(os.path.normpath(path))
    for top in (data_dir / folder for folder in TASK_FOLDERS):
        if top in clean.parents:
            return top / clean.relative_to(top).parts[0]
    return None


def find_output_folder(data_dir: Path, path: str) -> Path | None:
    """Return the path of a task's output folder, or None where `path` is not one."""
    clean = Path(os.path.normpath(path))
    return clean if path and clean.parent == data_dir / OUTPUTS_FOLDER else None


def find_missing_path(path: Path, problem: Problem, *, file: bool = False) -> list[Problem]:
    """Return the problem where nothing exists at `path`, or with `file` no regular file. Where the system cannot check
    it (a name that is too long, a loop of links, a folder without permission), return its error."""
    try:
        mode = os.stat(path).st_mode
    except (FileNotFoundError, NotADirectoryError):
        return [problem]
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or str(error)
        return [Problem(problem.field, "PATH_UNUSABLE", {"path": str(path), "why": why})]
    return [problem] if file and not stat.S_ISREG(mode) else []


def find_missing_path_below(folder: Path, path: str, problem: Problem) -> list[Problem]:
    """Return what `find_missing_path` returns for a path in `folder`, else nothing: nodes of this engine see other
    files than the platform."""
    return find_missing_path(Path(path), problem) if path.startswith(f"{folder}/") else []
