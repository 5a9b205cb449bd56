"""Measures and bounds the folder in which libraries of a project's tasks keep what they download and compile
(`fermi.runner.caches`).

What is removed is always a whole unit: a model or data set of Hugging Face's hub, a file or repository of torch.hub, a
compiled kernel's folder; of a library that is not known here its folder directly below `.cache`. Units go in the order
of their last use. A unit is renamed into a folder for removed ones first, so nobody sees a half of it, and what is left
there by a process that was killed is removed by the next call.

Tasks write to this folder, and the process that cleans it may have more rights than they. So each folder is opened from
the one above it without following links, and links are never more than entries to be removed.

The last use of a file is the later one of its times of access and of change. How exact the first is depends on the file
system (`read_access_delay`), which decides what may be removed while tasks of the project run.
"""

from __future__ import annotations

import errno
import os
import secrets
import stat
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from fermi.engines.safe_tree import FOLDER_FLAGS, open_folder_below
from fermi.jobs.user_paths import CACHE_FOLDER

REMOVED_FOLDER = ".fermi-removed"
MIN_UNUSED_SECONDS = 3600.0
"""What was used within this time stays: a task may be about to start with it."""
MAX_ENTRIES = 1_000_000
MAX_WALK_SECONDS = 60.0
MAX_REMOVAL_SECONDS = 300.0
MAX_DEPTH = 64
"""Of one walk; what is beyond is not counted, and a unit that has such parts is removed only while no task runs."""
RELATIME_SECONDS = 86_400.0
"""With `relatime`, Linux writes a time of access that is younger than the file only once a day (mount(8))."""
LOCAL_FILE_SYSTEMS = frozenset(("btrfs", "ext2", "ext3", "ext4", "f2fs", "tmpfs", "xfs"))
"""Those whose times of access are known to follow what processes of this kernel read. Clients of network file systems
read from their own memory, and the server does not learn of it (nfs(5), "ac / noac")."""
UNIT, KEPT = "unit", "kept"

_SHARDS = {"*": {"*": UNIT}}
LAYOUT: Mapping[str, Any] = {
    "fermi": KEPT,
    "huggingface": {
        "hub": {"models--*": UNIT, "datasets--*": UNIT, "spaces--*": UNIT, "*": KEPT},
        "datasets": {"*": UNIT},
        "xet": {"*": UNIT},
        "assets": {"*": UNIT},
        "*": KEPT,
    },
    "torch": {"hub": {"checkpoints": {"*": UNIT}, "trusted_list": KEPT, "*": UNIT}, "*": UNIT},
    "torchinductor": {"locks": KEPT, "fxgraph": _SHARDS, "aotautograd": _SHARDS, "triton": _SHARDS, "*": {"*": UNIT}},
    "triton": {"*": UNIT},
    "*": UNIT,
}
"""What the entries of each folder are. From the libraries' sources: huggingface_hub `constants.py` (beside its hub lie
the person's token and Accelerate's configuration, which stay), `torch/hub.py`, `torch/_inductor/codecache.py`
(`fxgraph/<2 letters>/<key>`), `triton/runtime/cache.py`."""


@dataclass(frozen=True, slots=True)
class CacheUnit:
    """What is removed as a whole. `path` below the cache; `used_at` unix seconds; `is_complete`: all of it was
    measured."""

    path: str
    size: int
    used_at: float
    is_complete: bool = True


@dataclass(slots=True)
class CacheContent:
    """Result of `measure_cache`. `size`: of all bytes on disk, also of what is never removed."""

    size: int = 0
    units: list[CacheUnit] = field(default_factory=list)
    is_complete: bool = True


@dataclass(slots=True)
class CacheCleanup:
    """Result of `clean_cache`: what is left, what was removed, and how many bytes above the limit had to stay."""

    left: CacheContent
    removed: list[CacheUnit] = field(default_factory=list)
    excess: int = 0


def measure_cache(homes: Path, project: str) -> CacheContent:
    """Return what the cache of a project holds. Raise OSError where there is none, or a link in its place."""
    with _open_cache(homes, project) as top:
        return _Walk().measure(top)


def clean_cache(homes: Path, project: str, max_bytes: int, find_busy_since: Callable[[], float | None]) -> CacheCleanup:
    """Remove the units that have not been used for the longest time until the cache has at most `max_bytes` bytes.
    `find_busy_since` returns when the oldest running task of the project began (unix seconds), None where none runs; it
    is called before each removal. Raise OSError where there is no cache, or a link in its place."""
    with _open_cache(homes, project) as top:
        _delete_removed(top)
        done = CacheCleanup(_Walk().measure(top))
        delay = read_access_delay(top)
        for unit in sorted(done.left.units, key=lambda one: one.used_at):
            if done.left.size <= max_bytes:
                break
            if _is_unused(unit, find_busy_since(), delay) and _set_aside(top, unit):
                done.removed.append(unit)
                done.left.units.remove(unit)
                done.left.size -= unit.size
        _delete_removed(top)
        done.excess = max(0, done.left.size - max_bytes)
        return done


def read_access_delay(folder: int) -> float | None:
    """Return by how many seconds the time of access in an open folder may lag behind the last reading; None where times
    of access do not say when something was read."""
    device = os.fstat(folder).st_dev
    wanted, delays = f"{os.major(device)}:{os.minor(device)}", list[float | None]()
    with suppress(OSError), open("/proc/self/mountinfo", encoding="utf-8", errors="replace") as file:
        for line in file:
            first, _, second = line.partition(" - ")
            words = first.split(" ")
            if len(words) > 5 and words[2] == wanted:
                delays.append(_compute_delay(words[5].split(","), second.partition(" ")[0]))
    known = [one for one in delays if one is not None]
    return max(known) if known and len(known) == len(delays) else None


def _compute_delay(options: list[str], kind: str) -> float | None:
    """Return the delay of one mount (proc_pid_mountinfo(5))."""
    if kind not in LOCAL_FILE_SYSTEMS or "noatime" in options or "ro" in options:
        return None
    return RELATIME_SECONDS if "relatime" in options else 0.0


def _is_unused(unit: CacheUnit, busy_since: float | None, delay: float | None) -> bool:
    """Return whether no running task can have used the unit since it began."""
    if unit.used_at > time.time() - MIN_UNUSED_SECONDS:
        return False
    if busy_since is None:
        return True
    return delay is not None and unit.is_complete and unit.used_at + delay < busy_since


@contextmanager
def _open_cache(homes: Path, project: str) -> Iterator[int]:
    if not project or "/" in project:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), project)
    top = os.open(homes, FOLDER_FLAGS & ~os.O_NOFOLLOW)
    try:
        with open_folder_below(top, f"{project}/{CACHE_FOLDER}") as cache:
            yield cache
    finally:
        os.close(top)


class _Walk:
    """A bounded walk over a cache."""

    def __init__(self) -> None:
        self._left, self._until = MAX_ENTRIES, time.monotonic() + MAX_WALK_SECONDS
        self._linked: set[tuple[int, int]] = set()
        self._now = time.time()

    def measure(self, top: int) -> CacheContent:
        found = CacheContent()
        self._measure_group(top, "", LAYOUT, found)
        return found

    def _measure_group(self, folder: int, path: str, layout: Mapping[str, Any], found: CacheContent) -> None:
        """Add what is below an open folder."""
        for name, info in self._list_entries(folder):
            below = f"{path}/{name}" if path else name
            kind = KEPT if below == REMOVED_FOLDER else _find_kind(layout, name)
            is_folder = stat.S_ISDIR(info.st_mode)
            if is_folder and isinstance(kind, dict):
                with suppress(OSError), open_folder_below(folder, name) as inner:
                    self._measure_group(inner, below, kind, found)
                continue
            size, used_at, is_complete = self._measure_tree(folder, name, info, MAX_DEPTH)
            found.size += size
            if kind != KEPT and (is_folder or stat.S_ISREG(info.st_mode)):
                found.units.append(CacheUnit(below, size, min(used_at, self._now), is_complete))
        found.is_complete = found.is_complete and self._left > 0 and time.monotonic() < self._until

    def _measure_tree(self, folder: int, name: str, info: os.stat_result, depth: int) -> tuple[int, float, bool]:
        """Return bytes, last use and whether all was seen of an entry of an open folder."""
        size, used_at = self._count_bytes(info), info.st_mtime
        if not stat.S_ISDIR(info.st_mode):
            return size, max(used_at, info.st_atime), True
        if depth <= 0:
            return size, used_at, False
        is_complete = False
        with suppress(OSError), open_folder_below(folder, name) as inner:
            is_complete = True
            for below, about in self._list_entries(inner):
                more, used, seen = self._measure_tree(inner, below, about, depth - 1)
                size, used_at, is_complete = size + more, max(used_at, used), is_complete and seen
        return size, used_at, is_complete and self._left > 0 and time.monotonic() < self._until

    def _list_entries(self, folder: int) -> Iterator[tuple[str, os.stat_result]]:
        with os.scandir(folder) as entries:
            for entry in entries:
                self._left -= 1
                if self._left <= 0 or (not self._left % 1000 and time.monotonic() > self._until):
                    self._left = 0
                    return
                with suppress(OSError):  # gone meanwhile
                    yield entry.name, entry.stat(follow_symlinks=False)

    def _count_bytes(self, info: os.stat_result) -> int:
        """Return the bytes on disk; 0 for another name of a file that was counted."""
        if info.st_nlink > 1 and not stat.S_ISDIR(info.st_mode):
            key = info.st_dev, info.st_ino
            if key in self._linked:
                return 0
            self._linked.add(key)
        return info.st_blocks * 512


def _find_kind(layout: Mapping[str, Any], name: str) -> Any:
    if name in layout:
        return layout[name]
    return next((kind for pattern, kind in layout.items() if fnmatchcase(name, pattern)), KEPT)


def _set_aside(top: int, unit: CacheUnit) -> bool:
    """Rename a unit into the folder of removed ones, and return whether that was done."""
    folders, _, name = unit.path.rpartition("/")
    try:
        with open_folder_below(top, folders) as at, _open_removed(top, make=True) as removed:
            with suppress(NotADirectoryError):
                _make_accessible(at, name)  # moving a folder changes its ..
            os.rename(name, secrets.token_hex(8), src_dir_fd=at, dst_dir_fd=removed)
        return True
    except OSError:
        return False


@contextmanager
def _open_removed(top: int, *, make: bool = False) -> Iterator[int]:
    """Open the folder of removed units; something else that a task put in its place is removed. Raise OSError."""
    try:
        found = os.open(REMOVED_FOLDER, FOLDER_FLAGS, dir_fd=top)
    except FileNotFoundError:
        if not make:
            raise
        os.mkdir(REMOVED_FOLDER, 0o700, dir_fd=top)
        found = os.open(REMOVED_FOLDER, FOLDER_FLAGS, dir_fd=top)
    except OSError as error:
        if error.errno not in (errno.ELOOP, errno.ENOTDIR):
            raise
        os.unlink(REMOVED_FOLDER, dir_fd=top)
        os.mkdir(REMOVED_FOLDER, 0o700, dir_fd=top)
        found = os.open(REMOVED_FOLDER, FOLDER_FLAGS, dir_fd=top)
    try:
        yield found
    finally:
        os.close(found)


def _delete_removed(top: int) -> None:
    """Delete what is in the folder of removed units, and the folder. What cannot be deleted stays for the next call."""
    until = time.monotonic() + MAX_REMOVAL_SECONDS
    with suppress(OSError), _open_removed(top) as removed:
        failed: set[str] = set()
        while time.monotonic() < until:
            names = [name for name in os.listdir(removed) if name not in failed]
            if not names:
                break
            failed.update(name for name in names if not _delete_entry(removed, name))
    with suppress(OSError):
        os.rmdir(REMOVED_FOLDER, dir_fd=top)


def _delete_entry(removed: int, name: str) -> bool:
    """Delete an entry of the folder of removed units, and return whether that was done. Folders in it are moved beside
    it: so no depth is too deep."""
    try:
        os.unlink(name, dir_fd=removed)
        return True
    except OSError as error:
        if error.errno not in (errno.EISDIR, errno.EPERM):  # EPERM: of a folder, in POSIX
            return error.errno == errno.ENOENT
    with suppress(OSError):
        _make_accessible(removed, name)
        with open_folder_below(removed, name) as folder, os.scandir(folder) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    _make_accessible(folder, entry.name)  # moving it changes its ..
                    os.rename(entry.name, secrets.token_hex(8), src_dir_fd=folder, dst_dir_fd=removed)
                else:
                    os.unlink(entry.name, dir_fd=folder)
        os.rmdir(name, dir_fd=removed)
        return True
    return False


def _make_accessible(folder: int, name: str) -> None:
    """Give the owner all rights to a folder, as some libraries take them away. chmod(2) follows links, so the folder is
    opened without any rights first. Raise OSError."""
    found = os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
    try:
        if os.fstat(found).st_mode & stat.S_IRWXU != stat.S_IRWXU:
            os.chmod(f"/proc/self/fd/{found}", 0o700)
    finally:
        os.close(found)
