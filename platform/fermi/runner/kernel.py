"""Finds out whether the kernel's OOM killer ended a rank that SIGKILL ended without a request. Standard library only,
Python 3.9 or later."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterable, Iterator
from typing import Any

UNLIMITED = 1 << 60  # cgroup v1 has a number for it
_ROOTS = ("/sys/fs/cgroup/memory", "/sys/fs/cgroup")
"""Mount points of version 1 and 2."""
MAX_RECORDS = 1 << 16
_OOM = re.compile(rb"oom-kill:constraint=CONSTRAINT_(\w+),(?:.*\boom_memcg=([^,]+))?.*\bpid=(\d+)")


class OomDetector:
    """Compares counts of the memory cgroups of this process and its ranks with those at its creation. `groups`: their
    folders, the innermost first."""

    def __init__(self, groups: Iterable[str] | None = None) -> None:
        self.began = _read_uptime()
        self.groups = list(list_memory_groups() if groups is None else groups)
        self.before = [_read_counts(folder) for folder in self.groups]

    def explains(self, pid: int) -> dict[str, Any] | None:
        """Return why `pid` was killed, as the `kill` of an entry, or None if unknown."""
        return self._by_log(pid) or self._by_counts()

    def _by_counts(self) -> dict[str, Any] | None:
        """Return the group whose own `oom` count grew: its limit was reached; otherwise the machine's memory was used
        up."""
        after = [_read_counts(folder) for folder in self.groups]
        if not any(new.get("oom_kill", 0) > old.get("oom_kill", 0) for old, new in zip(self.before, after)):  # noqa: B905
            return None
        limited = [
            folder
            for folder, old, new in zip(self.groups, self.before, after)  # noqa: B905
            if new.get("oom", 0) > old.get("oom", 0) and read_limit(folder) is not None
        ]
        return _describe_kill(limited[0]) if limited else self._killed_here() or _describe_kill(None)

    def _by_log(self, pid: int) -> dict[str, Any] | None:
        """Search the kernel log, which has the machine's pids: in a container it is neither readable nor ours."""
        for moment, record in _read_kernel_log():
            if moment >= self.began and (found := _OOM.search(record)) and int(found[3]) == pid:
                return (self._killed_in(found[2]) if found[1] == b"MEMCG" else None) or _describe_kill(None)
        return None

    def _killed_in(self, group: bytes | None) -> dict[str, Any] | None:
        """Return the kill by the limit of a group, which the kernel names as the machine does; in a container that is
        no path of ours."""
        for root in _ROOTS:
            if group and read_limit(folder := root + os.fsdecode(group)) is not None:
                return _describe_kill(folder)
        return self._killed_here()

    def _killed_here(self) -> dict[str, Any] | None:
        limited = [folder for folder in self.groups if read_limit(folder) is not None]
        return _describe_kill(limited[0]) if limited else None


def read_memory_limit() -> int | None:
    """Return how many bytes this process and its children may use: the machine's memory, or the limit of a group."""
    found = [limit for limit in (_read_total_memory(), *map(read_limit, list_memory_groups())) if limit]
    return min(found, default=None)


def _describe_kill(folder: str | None) -> dict[str, Any]:
    """Return the `kill` of an entry. `folder`: of the cgroup whose limit was reached; None: the host's memory was used
    up."""
    if folder is None:
        return {"by": "memory", "scope": "host", "limit": _read_total_memory(), "used": None}
    used = _read_number(folder, "memory.peak") or _read_number(folder, "memory.max_usage_in_bytes")
    return {"by": "memory", "scope": "cgroup", "limit": read_limit(folder), "used": used}


def list_memory_groups() -> Iterator[str]:
    """Yield the folders of the memory groups that this process is in, the innermost first."""
    with contextlib.suppress(OSError), open("/proc/self/cgroup", encoding="utf-8") as file:
        for line in file:
            _, controllers, path = line.rstrip("\n").split(":", 2)
            if "memory" in controllers.split(","):
                root = _ROOTS[0]
            elif not controllers and os.path.exists("/sys/fs/cgroup/cgroup.controllers"):
                root = _ROOTS[1]
            else:
                continue
            while True:
                if os.path.isdir(folder := root + path.rstrip("/")):
                    yield folder
                if path in ("", "/"):
                    break
                path = os.path.dirname(path)


def _read_counts(folder: str) -> dict[str, int]:
    found: dict[str, int] = {}
    for name in ("memory.events", "memory.oom_control"):
        with contextlib.suppress(OSError, ValueError), open(f"{folder}/{name}", encoding="ascii") as file:
            found.update((key, int(value)) for key, value in (line.split() for line in file))
    if "oom" not in found and "oom_kill" in found and read_limit(folder) is not None:  # version 1 counts one of them
        found["oom"] = found["oom_kill"]
    return found


def read_limit(folder: str) -> int | None:
    """Return the limit of a folder's group in bytes, or None if it has none."""
    limit = _read_number(folder, "memory.max") or _read_number(folder, "memory.limit_in_bytes")
    return limit if limit and limit < UNLIMITED else None


def _read_number(folder: str, name: str) -> int | None:
    with contextlib.suppress(OSError, ValueError), open(f"{folder}/{name}", encoding="ascii") as file:
        return int(file.read())
    return None


def _read_total_memory() -> int | None:
    with contextlib.suppress(OSError, ValueError, ArithmeticError):
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return None


def _read_uptime() -> float:
    with contextlib.suppress(OSError, ValueError), open("/proc/uptime", encoding="ascii") as file:
        return float(file.read().split()[0])
    return 0.0


def _read_kernel_log() -> Iterator[tuple[float, bytes]]:
    """Yield seconds since boot and text of each record of the kernel's log."""
    try:
        log = os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return
    try:
        for _ in range(MAX_RECORDS):
            try:
                head, _, text = os.read(log, 8192).partition(b";")
            except BrokenPipeError:  # overwritten meanwhile
                continue
            with contextlib.suppress(ValueError, IndexError):
                yield int(head.split(b",")[2]) / 1e6, text
    except OSError:
        return
    finally:
        os.close(log)
