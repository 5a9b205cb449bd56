"""Measures how much a task has written to a disk, and decides when it has to stop. Standard library only, Python 3.9 or
later.

Of the limits in the spec (see `bounds.py`):

    disk      bytes that the task's folders may hold; null = no limit of its own
    spare     bytes by which folders that hold more than that already may grow; 0 by default
    reserve   share of each disk that is kept for the platform: tasks write no more once less is free (at most
              `MAX_RESERVE_BYTES`)
    beside    other folders that the task may write to: their free space counts, their content does not

Free space costs one statvfs(3) and is checked every `PERIOD_SECONDS`. Folders are walked only if free space has shrunk,
and then not for `REST_FACTOR` times as long as a walk took. All of it happens in a thread: a network file system may
block, and must not block the runner.

Several tasks write to one disk, and their runners know nothing of each other. So below the reserve each runner decides
by its own samples whether its task is ended, in three steps: first a task that wrote half of what was lost, by its
folders; below half of the reserve also one that wrote so much elsewhere, by the kernel's count of its processes; below
a quarter every task that wrote within the last `WINDOW_SECONDS`.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from fermi.runner import processes
from fermi.runner.disk_space import format_bytes
from fermi.runner.run_names import parse_run_name

PERIOD_SECONDS = 0.25
MIN_WALK_SECONDS, MAX_WALK_SECONDS = 2.0, 60.0
"""Between two walks while free space shrinks, and while it does not."""
REST_FACTOR = 10
WINDOW_SECONDS = 120.0
MAX_ENTRIES = 200_000
"""Of a walk: further entries are not counted."""
MAX_RESERVE_BYTES = 32 << 30
MIN_WRITTEN_BYTES = 1 << 20
"""Bytes: a task that wrote less counts as not writing."""


class DiskSample(NamedTuple):
    """Bytes at one moment. `size`: of the task's folders; `written`: by its processes, as the kernel counts; `free`: by
    folder."""

    at: float
    size: int
    written: int
    free: Mapping[str, int]


class DiskMonitor:
    """Watches the disks of one node in a thread. `folders`: those that are counted. `name`: the attempt's. `found`: the
    cause once the task has to end."""

    def __init__(self, order: Mapping[str, Any], name: str, folders: Iterable[str]) -> None:
        self.task = parse_run_name(name)[0]
        self.bound = int(order["disk"]) if order.get("disk") else None
        self._spare, self._began_with = int(order.get("spare") or 0), -1
        self.share = float(order.get("reserve") or 0.0)
        self._named, self._beside = list(folders), list(order.get("beside", ()))
        self.samples: deque[DiskSample] = deque()
        self.found: dict[str, Any] | None = None
        self._walked_at, self._walk_took = 0.0, 0.0
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="disk use", daemon=True)

    @property
    def folders(self) -> list[str]:
        """The counted folders that exist by now."""
        return _find_outermost(self._named)

    @property
    def _places(self) -> list[str]:
        """The folders whose disks must have free space."""
        return _find_outermost([*self._named, *(path for path in self._beside if os.access(path, os.W_OK))])

    def refusal(self) -> dict[str, Any] | None:
        """Return the cause if nothing that writes should start because less is free than the reserve; else None."""
        low = next((about for folder in self._places if (about := self._below_reserve(folder))), None)
        return {"code": "DISK_WITHOUT_ROOM", **_convert_to_mib(low)} if low else None

    def start(self) -> None:
        """Start the thread if there is a limit."""
        if self.bound or self.share:
            self._thread.start()

    def close(self) -> None:
        """Ask the thread to end."""
        self._ending.set()

    def check(self) -> dict[str, Any] | None:
        """Take a sample. Return the cause if the task has to end, else None."""
        now, folders, places = time.monotonic(), self.folders, self._places
        free = {folder: disk[0] for folder in places if (disk := _read_disk(folder))}
        low = [about for folder in places if (about := self._below_reserve(folder))]
        last = self.samples[-1] if self.samples else None
        if last and not low and not self._shall_walk(now, last, free):
            return None
        size, written = _measure_folders(folders), _count_written_bytes() if low else 0
        self._walked_at = time.monotonic()
        self._walk_took = self._walked_at - now
        self.samples.append(DiskSample(now, size, written, free))
        while len(self.samples) > 2 and now - self.samples[1].at > WINDOW_SECONDS:
            self.samples.popleft()
        if self._began_with < 0:
            self._began_with = size
        began_over = self.bound and self._began_with >= self.bound
        if self.bound and size >= (self._began_with + self._spare if began_over else self.bound):
            first = self.samples[0]
            wrote = {"wrote": format_bytes(max(0, size - first.size)), "seconds": round(now - first.at)}
            about = {"size": format_bytes(size), "bound": format_bytes(self.bound), "path": folders[0]}
            return {"code": "DISK_BOUND_REACHED", "task": self.task, **about, **wrote}
        return next((found for about in low if (found := self._blamed(about))), None)

    def _run(self) -> None:
        while not self.found:
            with contextlib.suppress(OSError):
                self.found = self.check()
            if self._ending.wait(max(PERIOD_SECONDS, min(REST_FACTOR * self._walk_took, MAX_WALK_SECONDS))):
                return

    def _shall_walk(self, now: float, last: DiskSample, free: Mapping[str, int]) -> bool:
        passed = now - self._walked_at
        shrinks = any(free[folder] < last.free.get(folder, 0) - MIN_WRITTEN_BYTES for folder in free)
        return passed >= (MIN_WALK_SECONDS if shrinks else MAX_WALK_SECONDS)

    def _below_reserve(self, folder: str) -> dict[str, Any] | None:
        disk = _read_disk(folder)
        kept = min(self.share * disk[1], MAX_RESERVE_BYTES) if disk else 0
        if disk is None or disk[0] >= kept:
            return None
        return {"path": folder, "free": disk[0], "total": disk[1], "reserve": int(kept)}

    def _blamed(self, about: Mapping[str, Any]) -> dict[str, Any] | None:
        """Return the cause if this task used the space that is gone."""
        path, left, now = about["path"], about["free"] / about["reserve"], self.samples[-1]
        known = [sample for sample in self.samples if path in sample.free]
        fell = max(sample.free[path] for sample in known) - about["free"]
        since = min(known, key=lambda sample: sample.size)
        grew, seconds = now.size - since.size, now.at - since.at
        counted = [sample for sample in known if sample.written]
        wrote = now.written - counted[0].written if counted else 0
        went = (counted[0].free[path] - about["free"]) if counted else 0
        if left < 0.5 and wrote > grew and wrote >= max(MIN_WRITTEN_BYTES, went / 2):
            grew, seconds = wrote, now.at - counted[0].at
        elif not (grew >= max(MIN_WRITTEN_BYTES, fell / 2) or (left < 0.25 and max(grew, wrote) >= MIN_WRITTEN_BYTES)):
            return None
        told = {"wrote": format_bytes(max(grew, wrote)), "seconds": max(1, round(seconds))}
        return {"code": "DISK_RESERVE_REACHED", "task": self.task, **_convert_to_mib(about), **told}


def _convert_to_mib(about: Mapping[str, Any]) -> dict[str, Any]:
    return {"path": about["path"], **{f"{name}MiB": about[name] >> 20 for name in ("free", "total", "reserve")}}


def _find_outermost(folders: Iterable[str]) -> list[str]:
    """Return the folders that exist, each once, without those inside of another one."""
    found: list[str] = []
    for folder in sorted({os.path.realpath(one) for one in folders if one and os.path.isdir(one)}):
        if folder != "/" and not any(folder.startswith(f"{other}/") for other in found):
            found.append(folder)
    return found


def _read_disk(folder: str) -> tuple[int, int] | None:
    """Return the bytes that an ordinary user can still write, and those of the whole file system."""
    with contextlib.suppress(OSError):
        disk = os.statvfs(folder)
        if disk.f_blocks:
            return disk.f_bavail * disk.f_frsize, disk.f_blocks * disk.f_frsize
    return None


def _measure_folders(folders: Iterable[str]) -> int:
    """Return the bytes on disk of everything below, without following links."""
    size, left, waiting = 0, MAX_ENTRIES, list(folders)
    while waiting and left > 0:
        with contextlib.suppress(OSError), os.scandir(waiting.pop()) as entries:
            for entry in entries:
                left -= 1
                with contextlib.suppress(OSError):
                    size += entry.stat(follow_symlinks=False).st_blocks * 512
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)
                if left <= 0:
                    break
    return size


def _count_written_bytes() -> int:
    """Return the bytes that all processes of the node have sent to disks (write_bytes in proc_pid_io(5)); those of
    ended children count as their parent's. 0 if it cannot be read."""
    found = 0
    for pid in (os.getpid(), *processes.list_living_descendants()):
        with contextlib.suppress(OSError, ValueError), open(f"/proc/{pid}/io", encoding="ascii") as file:
            figures = dict(line.split(":") for line in file)
            found += int(figures["write_bytes"]) - int(figures["cancelled_write_bytes"])
    return max(0, found)
