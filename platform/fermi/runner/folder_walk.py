"""Lists what is below some folders, bounded, and opens files there without following a link. Standard library only,
Python 3.9 or later.

The ranks may put links and pipes anywhere, and the process that looks may have more rights than they. So each folder is
opened from the one above it (O_NOFOLLOW), and only regular files are opened.
"""

from __future__ import annotations

import contextlib
import os
import stat
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import BinaryIO, NamedTuple

MAX_ENTRIES = 20_000
MAX_FOLDER_ENTRIES = 2000
"""A folder with more is a data set: it is not read on, and not read again."""
MAX_DEPTH = 8
MAX_WALK_SECONDS = 3.0
SKIPPED_NAMES = frozenset(
    ("__pycache__", "node_modules", "site-packages", "venv", "wandb", "mlruns", "mlflow", "swanlog", "lost+found")
)
"""Folders that are not entered, like all hidden ones: packages, and what trackers keep of files that are elsewhere."""
SKIPPED_PREFIXES = (".", "models--", "datasets--", "spaces--")
"""The last three: `repo_folder_name` of huggingface_hub's `file_download.py`, the folders of its cache."""
FOREIGN_MARKS = ("pyvenv.cfg", "conda-meta", "blobs")
"""A folder that has one is a virtual environment, a Conda environment or a repository in huggingface_hub's cache."""
CACHE_VARIABLES = (
    "HF_HOME", "HF_HUB_CACHE", "HF_DATASETS_CACHE", "TRANSFORMERS_CACHE", "TORCH_HOME", "TRITON_CACHE_DIR",
    "TORCHINDUCTOR_CACHE_DIR", "TORCH_EXTENSIONS_DIR", "XDG_CACHE_HOME", "UV_CACHE_DIR", "PIP_CACHE_DIR",
    "FERMI_FILES_DIR", "WANDB_DIR",
)  # fmt: skip
"""Variables of ranks that name folders of downloads."""
DATA_VARIABLES = ("FERMI_TRAIN_DATA", "FERMI_VALID_DATA")
FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
FILE_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class Entry(NamedTuple):
    """A file or folder. `changed`: the time of its last change in nanoseconds."""

    is_folder: bool
    size: int
    changed: int
    inode: int


Listing = dict[str, dict[str, Entry]]
"""By folder (an absolute path): its entries by name."""


class FolderWalk:
    """Walks over folders again and again. `roots`: the more important ones first; `skipped`: paths that are not
    entered."""

    def __init__(self, roots: Iterable[str], skipped: Collection[str] = ()) -> None:
        self._named = list(roots)
        self._skipped = {os.path.realpath(path) for path in skipped}
        self._large: set[str] = set()

    @property
    def roots(self) -> list[str]:
        """The folders that exist by now, with links resolved, without those inside of an earlier one."""
        found: list[str] = []
        for one in self._named:
            path = os.path.realpath(one) if one else "/"
            if path != "/" and os.path.isdir(path) and not any(f"{path}/".startswith(f"{top}/") for top in found):
                found.append(path)
        return found

    def list_all(self) -> Listing:
        """Return what is there. What cannot be read, and what is beyond the limits, is left out."""
        found: Listing = {}
        left, until = MAX_ENTRIES, time.monotonic() + MAX_WALK_SECONDS
        for root in self.roots:
            with contextlib.suppress(OSError):
                top = os.open(root, FOLDER_FLAGS & ~os.O_NOFOLLOW)
                left = self._list_below(top, root, found, left, MAX_DEPTH, until)
        return found

    def _list_below(self, folder: int, path: str, found: Listing, left: int, depth: int, until: float) -> int:
        """Add what is below an open folder, which is closed, and return how many entries may still be read."""
        try:
            if path in found:
                return left
            entries = found[path] = _read_folder(folder, min(left, MAX_FOLDER_ENTRIES + 1))
            left -= len(entries) + 1
            if len(entries) > MAX_FOLDER_ENTRIES:
                self._large.add(path)
                found[path] = {}
                return left
            if depth <= 0 or any(name in entries for name in FOREIGN_MARKS):
                return left
            newest_first = sorted((n for n, e in entries.items() if e.is_folder), key=lambda n: -entries[n].changed)
            for name in newest_first:
                below = f"{path}/{name}"
                if left <= 0 or time.monotonic() > until:
                    break
                if self._is_skipped(name, below):
                    continue
                with contextlib.suppress(OSError):
                    inner = os.open(name, FOLDER_FLAGS, dir_fd=folder)
                    left = self._list_below(inner, below, found, left, depth - 1, until)
            return left
        finally:
            os.close(folder)

    def _is_skipped(self, name: str, path: str) -> bool:
        return (
            name in SKIPPED_NAMES or name.startswith(SKIPPED_PREFIXES) or path in self._skipped or path in self._large
        )

    def open_file(self, path: str) -> BinaryIO:
        """Open a regular file below one of the roots. Raises OSError, also where a link is on the way."""
        root = next((top for top in self.roots if path.startswith(f"{top}/")), None)
        if root is None:
            raise FileNotFoundError(path)
        *folders, name = path[len(root) + 1 :].split("/")
        at = os.open(root, FOLDER_FLAGS & ~os.O_NOFOLLOW)
        try:
            for folder in folders:
                above = at
                at = os.open(folder, FOLDER_FLAGS, dir_fd=above)
                os.close(above)
            file = os.open(name, FILE_FLAGS, dir_fd=at)
        finally:
            os.close(at)
        if not stat.S_ISREG(os.fstat(file).st_mode):
            os.close(file)
            raise OSError(f"not a regular file: {path}")
        return os.fdopen(file, "rb")


def list_skipped_paths(env: Mapping[str, str]) -> list[str]:
    """Return the folders of downloads and of data sets that variables of a rank name."""
    caches = [env[name] for name in CACHE_VARIABLES if env.get(name)]
    return caches + [os.path.dirname(env[name]) for name in DATA_VARIABLES if "/" in env.get(name, "")]


def list_files_below(listing: Listing, folder: str) -> Iterator[tuple[str, Entry]]:
    """Yield the files below a folder that were listed, with their paths relative to it."""
    waiting = [(folder, "")]
    while waiting:
        path, prefix = waiting.pop()
        for name, entry in listing.get(path, {}).items():
            if entry.is_folder:
                waiting.append((f"{path}/{name}", f"{prefix}{name}/"))
            else:
                yield f"{prefix}{name}", entry


def _read_folder(folder: int, most: int) -> dict[str, Entry]:
    found: dict[str, Entry] = {}
    with os.scandir(folder) as entries:
        for entry in entries:
            with contextlib.suppress(OSError):
                about = entry.stat(follow_symlinks=False)
                if stat.S_ISDIR(about.st_mode) or stat.S_ISREG(about.st_mode):
                    is_folder = stat.S_ISDIR(about.st_mode)
                    found[entry.name] = Entry(is_folder, about.st_size, about.st_mtime_ns, about.st_ino)
            if len(found) >= most:
                break
    return found
