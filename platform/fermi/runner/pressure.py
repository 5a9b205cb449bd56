"""Measures contention for a rank's processor, memory and disk, from /proc and its control group. Standard library only,
Python 3.9 or later. What cannot be read is None.

    starved     share of the time in which its main thread was runnable and got no processor (`schedstat`, second
                field: Documentation/scheduler/sched-stats.rst of the Linux kernel)
    throttled   share of the time in which a quota of its control group held it up
    stolen      share of all processors' time that the host of this virtual machine gave to others
    squeezed    share of the time in which something of its control group, or of the host, waited for memory
    written     bytes per second that its process wrote, read those that it read, to any descriptor
"""

from __future__ import annotations

import contextlib
import os
from typing import NamedTuple

_ROOT = "/sys/fs/cgroup"


class Pressure(NamedTuple):
    """Counters so far, in seconds and bytes; None: unknown."""

    starved: float | None = None
    throttled: float | None = None
    stolen: float | None = None
    squeezed: float | None = None
    read: float | None = None
    written: float | None = None


_RATES = ("read", "written")


def look(pid: int) -> Pressure:
    """Return the counters of a process."""
    return Pressure(_starved(pid), _throttled(pid), _stolen(), _squeezed(pid), *_moved(pid))


def shares(before: Pressure, now: Pressure, passed: float) -> dict[str, float]:
    """Return shares of the time between two measurements, 0 to 1, and bytes per second: those that are known and not
    zero."""
    found: dict[str, float] = {}
    for name, old, new in zip(Pressure._fields, before, now):  # noqa: B905 (strict is newer than 3.9)
        if old is None or new is None or passed <= 0:
            continue
        rate = (new - old) / passed
        if name in _RATES and rate >= 1:
            found[name] = round(rate)
        elif name not in _RATES and rate >= 0.005:
            found[name] = round(min(rate, 1.0), 3)
    return found


def _starved(pid: int) -> float | None:
    path = f"/proc/{pid}/task/{pid}/schedstat"
    with contextlib.suppress(OSError, ValueError, IndexError), open(path, encoding="ascii") as file:
        return int(file.read().split()[1]) / 1e9
    return None


def _moved(pid: int) -> tuple[float | None, float | None]:
    """Return bytes read and written: `rchar` and `wchar`."""
    with contextlib.suppress(OSError, ValueError, IndexError), open(f"/proc/{pid}/io", encoding="ascii") as file:
        read, written = (float(file.readline().split()[1]) for _ in range(2))
        return read, written
    return None, None


def _throttled(pid: int) -> float | None:
    """Return seconds: `throttled_usec` of version 2, `throttled_time` (nanoseconds) of version 1."""
    folders = _folders(pid)
    for path, name, unit in (
        (f"{_ROOT}{folders.get('', '')}/cpu.stat", "throttled_usec", 1e6),
        (f"{_ROOT}/cpu{folders.get('cpu', '')}/cpu.stat", "throttled_time", 1e9),
    ):
        if (value := _figure(path, name)) is not None:
            return value / unit
    return None


def _stolen() -> float | None:
    """Return the average of all processors."""
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
    """Return the process's groups by controller; that of version 2 has an empty name."""
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
