"""The search path for programs that the platform itself runs (git, ssh, podman, srun, nvidia-smi). Standard library
only, Python 3.9 or later.

A task that could put a program into a folder of PATH would have the platform run it. So every process of the platform
keeps only those folders of PATH that no task and no other user can write to, once, when it starts.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable

DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
"""Used if PATH is empty, or none of its folders can be trusted (file-hierarchy(7))."""


def filter_trusted_path(path: str, writable: Iterable[str] = ()) -> str:
    """Return the folders of `path` that are absolute, belong to root or to this process's user, are writable for no
    other user, and are outside of the folders `writable`, in which tasks may write. The same holds for each folder
    above; one with the sticky bit, such as /tmp, counts as not writable for others."""
    folders = [os.path.realpath(one) for one in writable if one]
    found = [one for one in path.split(os.pathsep) if os.path.isabs(one) and _is_trusted(one, folders)]
    return os.pathsep.join(dict.fromkeys(found)) or DEFAULT_PATH


def set_trusted_path(writable: Iterable[str]) -> None:
    """Reduce this process's PATH, and so that of its children, to what `filter_trusted_path` returns."""
    os.environ["PATH"] = filter_trusted_path(os.environ.get("PATH", ""), writable)


def _is_trusted(path: str, written: list[str]) -> bool:
    folder = os.path.realpath(path)
    if any(folder == one or folder.startswith(one.rstrip("/") + "/") for one in written):
        return False
    while True:
        try:
            about = os.stat(folder)
        except OSError:
            return False
        others = about.st_mode & stat.S_IWOTH and not about.st_mode & stat.S_ISVTX
        if about.st_uid not in (0, os.geteuid()) or others:
            return False
        if folder == "/":
            return True
        folder = os.path.dirname(folder)
