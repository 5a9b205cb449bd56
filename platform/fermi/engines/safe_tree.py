"""File tree outside of which nothing can be opened, whichever process writes to it: each step of a path is opened from
the one before it and follows no link, and only regular files are read."""

import errno
import math
import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
FILE_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
"""Without O_NONBLOCK, opening a pipe would block."""


@dataclass(frozen=True, slots=True)
class SafeTreeEntry:
    """File or folder of a tree. `path` from the tree's root; `size` of a folder is 0; `at` unix seconds, and of a file
    `mtime_ns` nanoseconds."""

    path: str
    folder: bool
    size: int
    at: float
    mtime_ns: int = 0

    @property
    def name(self) -> str:
        return self.path.rpartition("/")[2]


@contextmanager
def open_folder_below(folder: int, path: str, *, make_mode: int | None = None) -> Iterator[int]:
    """Open a folder below an open one, each on the way from the one before it and following no link; an empty path is
    the folder itself. `make_mode`: of folders that are made where there are none; None: none is made. Raise OSError."""
    there = os.dup(folder)
    try:
        for name in path.split("/") if path else ():
            if name in ("", ".", ".."):
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
            if make_mode is not None:
                with suppress(FileExistsError):
                    os.mkdir(name, make_mode, dir_fd=there)
            above, there = there, os.open(name, FOLDER_FLAGS, dir_fd=there)
            os.close(above)
        yield there
    finally:
        os.close(there)


class SafeTree:
    """Tree with relative, normalised paths (`apps.files.paths.normalize_path`); "" is the root itself. A path that does
    not exist, is a link, or neither a file nor a folder, raises OSError. Lists read at most `max_names` names of all
    its folders."""

    def __init__(self, root: Path, max_names: float = math.inf) -> None:
        self.root, self._left = root, max_names

    def open(self, path: str) -> BinaryIO:
        """Open a file for reading. Raise OSError."""
        with self._folder(_get_parent(path)) as there:
            file = os.open(_get_name(path), FILE_FLAGS, dir_fd=there)
            if not stat.S_ISREG(os.fstat(file).st_mode):
                os.close(file)
                raise FileNotFoundError(path)
            return os.fdopen(file, "rb")

    def get_entry(self, path: str) -> SafeTreeEntry:
        """Return a file or folder. Raise OSError."""
        if not path:
            with self._folder("") as there:
                return SafeTreeEntry("", True, 0, os.fstat(there).st_mtime)
        with self._folder(_get_parent(path)) as there:
            found = _build_entry(path, os.stat(_get_name(path), dir_fd=there, follow_symlinks=False))
        if found is None:
            raise FileNotFoundError(path)
        return found

    def list_entries(self, path: str = "") -> list[SafeTreeEntry]:
        """Return the entries of one folder, folders first, each by name; without links, special files and names that
        are not UTF-8. Raise OSError."""
        found = []
        with self._folder(path) as there, os.scandir(there) as listing:
            for one in listing:
                if self._left <= 0:
                    break
                self._left -= 1
                if not one.name.isprintable() and not _is_text(one.name):
                    continue
                with suppress(OSError):  # gone meanwhile
                    below = f"{path}/{one.name}" if path else one.name
                    if entry := _build_entry(below, one.stat(follow_symlinks=False)):
                        found.append(entry)
        return sorted(found, key=lambda entry: (not entry.folder, entry.name))

    def walk(self, path: str = "") -> Iterator[SafeTreeEntry]:
        """Yield all entries below a folder, a folder before what is in it; what cannot be read is left out."""
        left = [path]
        while left:
            try:
                entries = self.list_entries(left.pop())
            except OSError:
                continue
            yield from entries
            left += [entry.path for entry in reversed(entries) if entry.folder]

    def put(self, source: Path, path: str) -> None:
        """Move a file of the same disk into the tree, atomically in place of what is there. Raise OSError."""
        with self._folder(_get_parent(path), make=True) as there:
            os.rename(source, _get_name(path), dst_dir_fd=there)
            os.fsync(there)

    def move(self, path: str, to: str) -> None:
        """Move a file within the tree and remove folders that become empty. Raise OSError."""
        with self._folder(_get_parent(path)) as there, self._folder(_get_parent(to), make=True) as target:
            os.rename(_get_name(path), _get_name(to), src_dir_fd=there, dst_dir_fd=target)
        self._prune(_get_parent(path))

    def delete(self, path: str) -> None:
        """Delete a file, if it exists, and folders that become empty. Raise OSError."""
        with suppress(FileNotFoundError, NotADirectoryError):
            with self._folder(_get_parent(path)) as there:
                os.unlink(_get_name(path), dir_fd=there)
            self._prune(_get_parent(path))

    def remove(self) -> None:
        """Remove all of the tree. `rmtree` follows no link."""
        shutil.rmtree(self.root, ignore_errors=True)

    def _prune(self, path: str) -> None:
        """Remove folders that are empty now, up to the root."""
        while path:
            try:
                with self._folder(_get_parent(path)) as there:
                    os.rmdir(_get_name(path), dir_fd=there)
            except OSError:
                return
            path = _get_parent(path)

    @contextmanager
    def _folder(self, path: str, *, make: bool = False) -> Iterator[int]:
        if make:
            self.root.mkdir(parents=True, exist_ok=True)
        root = os.open(self.root, FOLDER_FLAGS)
        try:
            with open_folder_below(root, path, make_mode=0o755 if make else None) as there:
                yield there
        finally:
            os.close(root)


def _is_text(name: str) -> bool:
    """Return whether a name can be stored: bytes that are not UTF-8 fit into no answer and no database."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return "\0" not in name


def _build_entry(path: str, info: os.stat_result) -> SafeTreeEntry | None:
    if stat.S_ISDIR(info.st_mode):
        return SafeTreeEntry(path, True, 0, info.st_mtime)
    if not stat.S_ISREG(info.st_mode):
        return None
    return SafeTreeEntry(path, False, info.st_size, info.st_mtime, info.st_mtime_ns)


def _get_parent(path: str) -> str:
    return path.rpartition("/")[0]


def _get_name(path: str) -> str:
    name = path.rpartition("/")[2]
    if name in ("", ".", ".."):
        raise FileNotFoundError(path)
    return name
