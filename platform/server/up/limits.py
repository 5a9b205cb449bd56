"""Limits, niceness, scheduling policy and processors of the platform's processes, which they inherit from the
supervisor.

Another process of the same user can change them without a signal (prlimit(2), setpriority(2), sched_setaffinity(2),
ioprio_set(2)). Training on this machine cannot (`fermi.runner.seccomp`); other processes of this user can.
"""

import ctypes
import os
import platform
import resource
from collections.abc import Iterable, Mapping
from contextlib import suppress

IOPRIO_GET = {"x86_64": 252, "aarch64": 31}.get(platform.machine())
LIMITS = {
    name: getattr(resource, name) for name in dir(resource) if name.startswith("RLIMIT_") and name != "RLIMIT_OFILE"
}  # which is another name of RLIMIT_NOFILE
IOPRIO_BEST_EFFORT = 2

ProcessSettings = Mapping[str, str]
"""Settings of a process, by name: `RLIMIT_NOFILE`, `nice`, `policy`, `processors`, `ioprio`. Values that differ between
its threads are joined: `0, 19`."""

_libc = ctypes.CDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long


def read_process_settings(pid: int) -> ProcessSettings:
    """Return the settings of a process; empty for one that has ended."""
    threads: dict[str, set[str]] = {"nice": set(), "policy": set(), "processors": set(), "ioprio": set()}
    found = {}
    with suppress(OSError):
        for thread in map(int, os.listdir(f"/proc/{pid}/task")):
            with suppress(OSError):  # it has ended
                nice = os.getpriority(os.PRIO_PROCESS, thread)
                threads["nice"].add(str(nice))
                threads["policy"].add(_policy(os.sched_getscheduler(thread)))
                threads["processors"].add(_ranges(os.sched_getaffinity(thread)))
                threads["ioprio"].add(_ioprio(thread, nice))
        for name, number in LIMITS.items():
            with suppress(OSError, ValueError):
                found[name] = ":".join(map(str, resource.prlimit(pid, number)))
    return found | {name: ", ".join(sorted(values)) for name, values in threads.items() if values}


def find_changes(settings: ProcessSettings, references: Iterable[ProcessSettings]) -> dict[str, tuple[str, str]]:
    """Return the settings of a process that match none of the references (the supervisor at its start, and now: what
    the system changes, it changes for all), with the first reference's value. A raised limit is not a change: processes
    raise their own."""
    references = [*references]
    return {
        name: (value, references[0].get(name, ""))
        for name, value in settings.items()
        if not any(_is_within(name, value, reference.get(name, value)) for reference in references)
    }


def _is_within(name: str, value: str, wanted: str) -> bool:
    if not name.startswith("RLIMIT_"):
        return value == wanted
    infinite = str(resource.RLIM_INFINITY)
    pairs = zip(value.split(":"), wanted.split(":"), strict=True)
    return all(have == infinite or (least != infinite and int(have) >= int(least)) for have, least in pairs)


def _ioprio(thread: int, nice: int) -> str:
    """Return the I/O priority; "" where it follows from niceness, as it does unless it was set (ioprio_set(2)); kernels
    differ in how they report that."""
    value = _libc.syscall(*map(ctypes.c_long, (IOPRIO_GET, 1, thread))) if IOPRIO_GET else 0
    level, kind = value & 0x1FFF, value >> 13
    follows = value < 0 or kind == 0 or (kind, level) == (IOPRIO_BEST_EFFORT, (nice + 20) // 5)
    return "" if follows else f"{kind}:{level}"


def _policy(number: int) -> str:
    number &= ~os.SCHED_RESET_ON_FORK
    names = {getattr(os, name): name for name in ("SCHED_OTHER", "SCHED_BATCH", "SCHED_IDLE", "SCHED_FIFO", "SCHED_RR")}
    return names.get(number, str(number))


def _ranges(numbers: Iterable[int]) -> str:
    """Return numbers as ranges: `0-3,8`."""
    parts: list[list[int]] = []
    for number in sorted(numbers):
        if parts and number == parts[-1][-1] + 1:
            parts[-1][1:] = [number]
        else:
            parts.append([number])
    return ",".join("-".join(map(str, part)) for part in parts)
