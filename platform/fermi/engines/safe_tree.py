"""A folder of which nothing outside can be named, whoever writes in it: each step on the way is opened from the one
before it and follows no link, and only regular files are read."""

import math
import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
"""Without O_NONBLOCK a pipe would keep who opens it waiting."""


@dataclass(frozen=True, slots=True)
class Entry:
    """`path` from the tree's root; `size` of a folder is 0; `at` unix seconds, and of a file `mtime_ns` nanoseconds."""

    path: str
    folder: bool
    size: int
    at: float
    mtime_ns: int = 0

    @property
    def name(self) -> str:
        return self.path.rpartition("/")[2]


class Tree:
    """Paths are relative and clean (`apps.files.paths.clean`); "" is the root itself. What is not there, is a link, or
    neither a file nor a folder, raises OSError. Of all names in its folders, lists look at the first `most`."""

    def __init__(self, root: Path, most: float = math.inf) -> None:
        self.root, self._left = root, most

    def open(self, path: str) -> BinaryIO:
        with self._folder(_parent(path)) as there:
            file = os.open(_name(path), FILE, dir_fd=there)
            if not stat.S_ISREG(os.fstat(file).st_mode):
                os.close(file)
                raise FileNotFoundError(path)
            return os.fdopen(file, "rb")

    def look(self, path: str) -> Entry:
        if not path:
            with self._folder("") as there:
                return Entry("", True, 0, os.fstat(there).st_mtime)
        with self._folder(_parent(path)) as there:
            found = _entry(path, os.stat(_name(path), dir_fd=there, follow_symlinks=False))
        if found is None:
            raise FileNotFoundError(path)
        return found

    def entries(self, path: str = "") -> list[Entry]:
        """Of one folder, folders first, each by name. Links and special files are left out."""
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
                    if entry := _entry(below, one.stat(follow_symlinks=False)):
                        found.append(entry)
        return sorted(found, key=lambda entry: (not entry.folder, entry.name))

    def walk(self, path: str = "") -> Iterator[Entry]:
        """All below, a folder before what is in it; what cannot be looked at is left out."""
        left = [path]
        while left:
            try:
                entries = self.entries(left.pop())
            except OSError:
                continue
            yield from entries
            left += [entry.path for entry in reversed(entries) if entry.folder]

    def put(self, source: Path, path: str) -> None:
        """Atomically, in place of what is there; `source` is on the same disk."""
        with self._folder(_parent(path), make=True) as there:
            os.rename(source, _name(path), dst_dir_fd=there)
            os.fsync(there)

    def move(self, path: str, to: str) -> None:
        with self._folder(_parent(path)) as there, self._folder(_parent(to), make=True) as target:
            os.rename(_name(path), _name(to), src_dir_fd=there, dst_dir_fd=target)
        self._prune(_parent(path))

    def delete(self, path: str) -> None:
        with suppress(FileNotFoundError, NotADirectoryError):
            with self._folder(_parent(path)) as there:
                os.unlink(_name(path), dir_fd=there)
            self._prune(_parent(path))

    def remove(self) -> None:
        """All of it. `rmtree` follows no link."""
        shutil.rmtree(self.root, ignore_errors=True)

    def _prune(self, path: str) -> None:
        """Folders that are empty now go, up to the root."""
        while path:
            try:
                with self._folder(_parent(path)) as there:
                    os.rmdir(_name(path), dir_fd=there)
            except OSError:
                return
            path = _parent(path)

    @contextmanager
    def _folder(self, path: str, *, make: bool = False) -> Iterator[int]:
        if make:
            self.root.mkdir(parents=True, exist_ok=True)
        there = os.open(self.root, FOLDER)
        try:
            for name in path.split("/") if path else ():
                if name in ("", ".", ".."):
                    raise FileNotFoundError(path)
                if make:
                    with suppress(FileExistsError):
                        os.mkdir(name, 0o755, dir_fd=there)
                below = os.open(name, FOLDER, dir_fd=there)
                os.close(there)
                there = below
            yield there
        finally:
            os.close(there)


def _is_text(name: str) -> bool:
    """Not so: bytes that are not UTF-8, which no answer and no database could hold."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return "\0" not in name


def _entry(path: str, found: os.stat_result) -> Entry | None:
    if stat.S_ISDIR(found.st_mode):
        return Entry(path, True, 0, found.st_mtime)
    if not stat.S_ISREG(found.st_mode):
        return None
    return Entry(path, False, found.st_size, found.st_mtime, found.st_mtime_ns)


def _parent(path: str) -> str:
    return path.rpartition("/")[0]


def _name(path: str) -> str:
    name = path.rpartition("/")[2]
    if name in ("", ".", ".."):
        raise FileNotFoundError(path)
    return name
