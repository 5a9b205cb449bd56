"""What a rank's processor and memory have to bear beside it, from /proc and its control group. Standard library only,
Python 3.9 or later. What cannot be read is not known.

    throttled   share of the time in which a quota of its control group held it up
    stolen      share of all processors' time that the host of this virtual machine gave to others
    squeezed    share of the time in which something of its control group, or of the host, waited for memory
"""

from __future__ import annotations

import contextlib
import os
from typing import NamedTuple

_ROOT = "/sys/fs/cgroup"


class Pressure(NamedTuple):
    """Seconds so far; None: not known."""

    throttled: float | None = None
    stolen: float | None = None
    squeezed: float | None = None


def look(pid: int) -> Pressure:
    return Pressure(_throttled(pid), _stolen(), _squeezed(pid))


def shares(before: Pressure, now: Pressure, passed: float) -> dict[str, float]:
    """Of the time between two looks, those that can be told and are not zero; 0 to 1."""
    found = {}
    for name, old, new in zip(Pressure._fields, before, now):  # noqa: B905 (strict is newer than 3.9)
        if old is not None and new is not None and passed > 0 and (share := (new - old) / passed) >= 0.005:
            found[name] = round(min(share, 1.0), 3)
    return found


def _throttled(pid: int) -> float | None:
    """`throttled_usec` of version 2, `throttled_time` (nanoseconds) of version 1."""
    folders = _folders(pid)
    for path, name, unit in (
        (f"{_ROOT}{folders.get('', '')}/cpu.stat", "throttled_usec", 1e6),
        (f"{_ROOT}/cpu{folders.get('cpu', '')}/cpu.stat", "throttled_time", 1e9),
    ):
        if (value := _figure(path, name)) is not None:
            return value / unit
    return None


def _stolen() -> float | None:
    """Of one processor on average."""
    with contextlib.suppress(OSError, ValueError, IndexError), open("/proc/stat", encoding="ascii") as file:
        fields = file.readline().split()
        return int(fields[8]) / os.sysconf("SC_CLK_TCK") / (os.cpu_count() or 1)
    return None


def _squeezed(pid: int) -> float | None:
    for path in (f"{_ROOT}{_folders(pid).get('', '')}/memory.pressure", "/proc/pressure/memory"):
        with contextlib.suppress(OSError, ValueError, IndexError), open(path, encoding="ascii") as file:
            some = next(line for line in file if line.startswith("some"))
            return int(some.rpartition("total=")[2]) / 1e6
    return None


def _folders(pid: int) -> dict[str, str]:
    """By controller; version 2 has none by name."""
    found = {}
    with contextlib.suppress(OSError), open(f"/proc/{pid}/cgroup", encoding="utf-8") as file:
        for line in file:
            _, controllers, folder = line.rstrip("\n").split(":", 2)
            for one in controllers.split(","):
                found[one] = folder.rstrip("/")
    return found


def _figure(path: str, name: str) -> int | None:
    with contextlib.suppress(OSError, ValueError, IndexError), open(path, encoding="ascii") as file:
        return next((int(line.split()[1]) for line in file if line.startswith(f"{name} ")), None)
    return None
