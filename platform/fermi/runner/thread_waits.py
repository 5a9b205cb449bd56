"""Reads what the threads of a rank's processes wait for, from /proc. Standard library only, Python 3.9 or later.

A thread that comes back from a wait increases its count of voluntary switches: whatever happens to a rank (a timer,
received bytes, a program of its own that continues) wakes a thread of it. Threads of the training libraries wake all
the time to poll the network, so they are left out.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable
from typing import NamedTuple

from fermi.runner import processes

RUNTIME_THREADS = ("gloo_", "pt_gloo", "pt_nccl", "pt_tcpstore", "NCCL", "cuda")
"""Prefixes of the names of such threads: gloo/transport/tcp/loop.cc, PyTorch's ProcessGroupGloo.cpp,
ProcessGroupNCCL.cpp and TCPStoreLibUvBackend.cpp, NCCL's init.cc and proxy.cc, CUDA's driver."""

# Number of the system call -> which of its arguments is the limit of the wait, and whether that is an address or whole
# milliseconds (arch/x86/entry/syscalls/syscall_64.tbl and include/uapi/asm-generic/unistd.h of Linux).
_FUTEX = {"x86_64": 202, "aarch64": 98}
_LIMITS = {
    "x86_64": {202: (3, True), 7: (2, False), 232: (3, False), 281: (3, False), 271: (2, True), 23: (4, True),
               270: (4, True), 35: (0, True), 230: (2, True)},
    "aarch64": {98: (3, True), 22: (3, False), 73: (2, True), 72: (4, True), 101: (0, True), 115: (2, True)},
}  # fmt: skip
_PRIVATE, _COMMANDS = 128, 127
_WAITS = (0, 6, 9)  # FUTEX_WAIT, FUTEX_LOCK_PI, FUTEX_WAIT_BITSET


class ThreadWaits(NamedTuple):
    """Waits of all threads. `wakes`: how often they have come back from a wait, in total; None: unknown. `locked`: each
    waits, without a timeout, for a lock that only a thread of its own process can release. `timed`: one waits with a
    timeout, so it continues by itself."""

    wakes: int | None = None
    locked: bool = False
    timed: bool = False


def read_waits(pids: Iterable[int], leave_out: Collection[int] = ()) -> ThreadWaits:
    """Return the waits of a rank's processes. `leave_out`: threads of the probe."""
    wakes, locked, timed, seen = 0, True, False, False
    try:
        for pid in pids:
            for thread in map(int, os.listdir(f"/proc/{pid}/task")):
                status = processes.read_status_fields(pid, thread)
                if thread in leave_out or status["Name"].startswith(RUNTIME_THREADS):
                    continue
                seen, wakes = True, wakes + int(status["voluntary_ctxt_switches"])
                call = _read_call(pid, thread)
                locked, timed = locked and is_lock_wait(call), timed or is_timed_wait(call)
        return ThreadWaits(wakes if seen else None, seen and locked, timed)
    except (OSError, KeyError, ValueError):
        return ThreadWaits()


def is_lock_wait(call: list[str], machine: str = os.uname().machine) -> bool:
    """Return True if a thread in this system call, as in /proc/<pid>/syscall, waits for a lock of its own process
    without a timeout (futex(2))."""
    if not call or call[0] != str(_FUTEX.get(machine)):
        return False
    operation = int(call[2], 16)
    return operation & _COMMANDS in _WAITS and bool(operation & _PRIVATE) and not is_timed_wait(call, machine)


def is_timed_wait(call: list[str], machine: str = os.uname().machine) -> bool:
    """Return True if a thread in this system call waits with a timeout."""
    if not call or not call[0].isdigit():  # `running`, or a call of another kernel's
        return False
    argument, is_address = _LIMITS.get(machine, {}).get(int(call[0]), (None, True))
    if argument is None:
        return False
    limit = int(call[1 + argument], 16)
    return limit != 0 if is_address else limit & 0xFFFFFFFF < 1 << 31


def _read_call(pid: int, thread: int) -> list[str]:
    """Return the fields of /proc/<pid>/task/<tid>/syscall; empty if they cannot be read."""
    try:
        with open(f"/proc/{pid}/task/{thread}/syscall", encoding="ascii") as file:
            return file.read().split()
    except OSError:
        return []
