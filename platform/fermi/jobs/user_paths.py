"""Paths that people name, looked at where the platform runs."""

import os
import stat
from pathlib import Path

from fermi.jobs.spec import Problem

CHECKPOINTS = "checkpoints"
"""In the data directory: a folder for each task, which the task may write to and nobody may exchange."""

OUTPUTS = "outputs"
"""The same of what tasks write besides."""
TREES, TREE = "trees", "code"
"""In the data directory: a folder for each task that brings code; in it, the folder that its ranks start in."""
HOMES = "homes"
"""In the data directory: a folder for each project, which is HOME of its tasks and keeps what libraries cache there."""
FILES = "files"
"""In the data directory, unless they lie elsewhere: a folder for each project, which its tasks may read."""


def task_folder(data_dir: Path, path: str) -> Path | None:
    """The folder of the task whose checkpoints `path` names, as it is written: what may be read by who resumes from
    `path`. Links are not followed: a script can change those in its folder at any time, but not the folder itself."""
    clean = Path(os.path.normpath(path))
    for top in (data_dir / CHECKPOINTS, data_dir / TREES):
        if top in clean.parents:
            return top / clean.relative_to(top).parts[0]
    return None


def output_folder(data_dir: Path, path: str) -> Path | None:
    """The task's folder that `path` is; None where it is none."""
    clean = Path(os.path.normpath(path))
    return clean if path and clean.parent == data_dir / OUTPUTS else None


def absent(path: Path, problem: Problem, *, file: bool = False) -> list[Problem]:
    """`problem` when nothing is at `path`, or with `file` no regular file. Where the system cannot even look (a name
    that is longer than a file system takes, a loop of links, a folder that may not be entered), what it says."""
    try:
        mode = os.stat(path).st_mode
    except (FileNotFoundError, NotADirectoryError):
        return [problem]
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or str(error)
        return [Problem(problem.field, "PATH_UNUSABLE", {"path": str(path), "why": why})]
    return [problem] if file and not stat.S_ISREG(mode) else []


def absent_below(folder: Path, path: str, problem: Problem) -> list[Problem]:
    """As `absent`, for an engine whose nodes see other files than the platform, but for those in `folder`."""
    return absent(Path(path), problem) if path.startswith(f"{folder}/") else []
