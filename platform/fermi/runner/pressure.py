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


def read_pressure(pid: int) -> Pressure:
    """Return the counters of a process."""
    return Pressure(_read_starved(pid), _read_throttled(pid), _read_stolen(), _read_squeezed(pid), *_read_moved(pid))


def compute_shares(before: Pressure, after: Pressure, seconds: float) -> dict[str, float]:
    """Return shares of the time between two measurements, 0 to 1, and bytes per second: those that are known and not
    zero."""
    found: dict[str, float] = {}
    for name, old, new in zip(Pressure._fields, before, after):  # noqa: B905 (strict is newer than 3.9)
        if old is None or new is None or seconds <= 0:
            continue
        rate = (new - old) / seconds
        if name in _RATES and rate >= 1:
            found[name] = round(rate)
        elif name not in _RATES and rate >= 0.005:
            found[name] = round(min(rate, 1.0), 3)
    return found


def _read_starved(pid: int) -> float | None:
    path = f"/proc/{pid}/task/{pid}/schedstat"
    with contextlib.suppress(OSError, ValueError, IndexError), open(path, encoding="ascii") as file:
        return int(file.read().split()[1]) / 1e9
    return None


def _read_moved(pid: int) -> tuple[float | None, float | None]:
    """Return bytes read and written: `rchar` and `wchar`."""
    with contextlib.suppress(OSError, ValueError, IndexError), open(f"/proc/{pid}/io", encoding="ascii") as file:
        read, written = (float(file.readline().split()[1]) for _ in range(2))
        return read, written
    return None, None


def _read_throttled(pid: int) -> float | None:
    """Return seconds: `throttled_usec` of version 2, `throttled_time` (nanoseconds) of version 1."""
    folders = _read_groups(pid)
    for path, name, unit in (
        (f"{_ROOT}{folders.get('', '')}/cpu.stat", "throttled_usec", 1e6),
        (f"{_ROOT}/cpu{folders.get('cpu', '')}/cpu.stat", "throttled_time", 1e9),
    ):
        if (value := _read_figure(path, name)) is not None:
            return value / unit
    return None


def _read_stolen() -> float | None:
    """Return the average of all processors."""
    with contextlib.suppress(OSError, ValueError, IndexError), open("/proc/stat", encoding="ascii") as file:
        fields = file.readline().split()
        return int(fields[8]) / os.sysconf("SC_CLK_TCK") / (os.cpu_count() or 1)
    return None


def _read_squeezed(pid: int) -> float | None:
    for path in (f"{_ROOT}{_read_groups(pid).get('', '')}/memory.pressure", "/proc/pressure/memory"):
        with contextlib.suppress(OSError, ValueError, IndexError), open(path, encoding="ascii") as file:
            some = next(line for line in file if line.startswith("some"))
            return int(some.rpartition("total=")[2]) / 1e6
    return None


def _read_groups(pid: int) -> dict[str, str]:
    """Return the process's groups by controller; that of version 2 has an empty name."""
    found = {}
    with contextlib.suppress(OSError), open(f"/proc/{pid}/cgroup", encoding="utf-8") as file:
        for line in file:
            _, controllers, folder = line.rstrip("\n").split(":", 2)
            for one in controllers.split(","):
                found[one] = folder.rstrip("/")
    return found


def _read_figure(path: str, name: str) -> int | None:
    with contextlib.suppress(OSError, ValueError, IndexError), open(path, encoding="ascii") as file:
        return next((int(line.split()[1]) for line in file if line.startswith(f"{name} ")), None)
    return None
