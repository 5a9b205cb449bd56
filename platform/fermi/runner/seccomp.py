"""A filter of system calls by which a process could change processes that are not its own: their limits, priorities,
scheduling policy and processors. Standard library only, Python 3.9.

The kernel lets a process do that to every process of its user, and Landlock does not restrict it. What reads or writes
another process's memory (ptrace, process_vm_writev, pidfd_getfd, kcmp, move_pages, migrate_pages, process_madvise) asks
for the right to trace it, which Landlock, or another user, refuses already (kernel/ptrace.c, `ptrace_may_access`).

A filter sees numbers only. It cannot know whether a process id belongs to the same task, so it allows 0 ("myself",
which setrlimit, nice, taskset and numactl use) and the id of the process that entered it. Every other id is refused
with EPERM. Calls of the scheduler are answered differently: for another id they succeed and change nothing, because
the C library names threads by their ids (pthread_setaffinity_np, pthread_setschedparam), OpenMP ends a program whose
threads cannot be bound (libgomp, team.c), and ZeroMQ, which JupyterLab's kernels talk by, one whose threads cannot be
given the policy that they have (libzmq, thread.cpp). Decision 78 has the reasons.

The numbers come from the kernel's arch/x86/entry/syscalls/syscall_64.tbl and include/uapi/asm-generic/unistd.h, the
form of a filter from seccomp(2) and include/uapi/linux/{seccomp,filter,audit}.h.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct
from dataclasses import dataclass

SET_MODE_FILTER, GET_ACTION_AVAIL = 1, 2
SPEC_ALLOW = 1 << 2
"""Without it, kernels before 5.16 slow down everything that a filtered process computes (seccomp(2))."""
ALLOW, ERRNO = 0x7FFF0000, 0x00050000
REFUSE, PRETEND, NO_SUCH_CALL = ERRNO | errno.EPERM, ERRNO | 0, ERRNO | errno.ENOSYS

OP_LOAD, OP_JUMP_EQUAL, OP_JUMP_GREATER, OP_JUMP_AT_LEAST, OP_RETURN = 0x20, 0x15, 0x25, 0x35, 0x06
NUMBER_AT, ARCHITECTURE_AT, ARGUMENTS_AT = 0, 4, 16  # bytes of struct seccomp_data
X32 = 0x40000000
"""From this number on, calls of the x32 interface, which reports the architecture of x86_64."""
PRIO_PGRP, IOPRIO_WHO_PGRP = 1, 2  # one more is "all processes of a user"

_libc = ctypes.CDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long


@dataclass(frozen=True)
class Architecture:
    """Constants of an architecture: `audit` is its id there, the others are numbers of calls."""

    audit: int
    seccomp: int
    setpriority: int
    ioprio_set: int
    prlimit64: int
    sched_setaffinity: int
    sched_setparam: int
    sched_setscheduler: int
    sched_setattr: int


ARCHITECTURES = {
    "x86_64": Architecture(0xC000003E, 317, 141, 251, 302, 203, 142, 144, 314),
    "aarch64": Architecture(0xC00000B7, 277, 140, 30, 261, 122, 118, 119, 274),
}

FilterStep = tuple[int, int, int, int]
"""Operation, steps to skip if true, steps to skip if false, operand."""


def is_available() -> bool:
    """Return True if this kernel takes filters, and its architecture is a known one."""
    machine = ARCHITECTURES.get(platform.machine())
    if machine is None:
        return False
    action = ctypes.c_uint32(ERRNO)
    return not _libc.syscall(
        ctypes.c_long(machine.seccomp), ctypes.c_uint(GET_ACTION_AVAIL), ctypes.c_uint(0), ctypes.byref(action)
    )


def install_filter() -> None:
    """Filter the calls of this process, which must have no_new_privs, and of its children, for good. Does nothing if
    filters are not available (`fermi.engines.isolation` reports that). Raises OSError."""
    if not is_available():
        return
    machine = ARCHITECTURES[platform.machine()]
    steps = build_filter(machine, os.getpid())
    code = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *step) for step in steps))
    program = struct.pack("@HP", len(steps), ctypes.addressof(code))
    if _libc.syscall(
        ctypes.c_long(machine.seccomp), ctypes.c_uint(SET_MODE_FILTER), ctypes.c_uint(SPEC_ALLOW), program
    ):
        code_of = ctypes.get_errno()
        raise OSError(code_of, f"seccomp: {os.strerror(code_of)}")


def build_filter(machine: Architecture, pid: int) -> list[FilterStep]:
    """Return the filter for a process `pid`. Each call's steps end with a return, so the next call's are only reached
    with the call's number still loaded. Calls of another architecture have other numbers: none is allowed."""
    steps: list[FilterStep] = [
        (OP_LOAD, 0, 0, ARCHITECTURE_AT), (OP_JUMP_EQUAL, 1, 0, machine.audit), (OP_RETURN, 0, 0, NO_SUCH_CALL),
        (OP_LOAD, 0, 0, NUMBER_AT), (OP_JUMP_AT_LEAST, 0, 1, X32), (OP_RETURN, 0, 0, NO_SUCH_CALL),
    ]  # fmt: skip
    for number in (machine.sched_setparam, machine.sched_setscheduler, machine.sched_setattr):
        steps += _match_call(number, [*_allow_if(0, 0), *_allow_if_equal(pid), (OP_RETURN, 0, 0, PRETEND)])
    steps += _match_call(machine.sched_setaffinity, [*_allow_if(0, 0), (OP_RETURN, 0, 0, PRETEND)])
    reads = [
        (OP_LOAD, 0, 0, _locate_low_half(2)),
        (OP_JUMP_EQUAL, 0, 3, 0),
        (OP_LOAD, 0, 0, _locate_low_half(2) + 4),
        *_allow_if_equal(0),
    ]
    steps += _match_call(machine.prlimit64, [*reads, *_refuse_unless_own(0, pid)])
    for number, groups in ((machine.setpriority, PRIO_PGRP), (machine.ioprio_set, IOPRIO_WHO_PGRP)):
        of_a_user = [(OP_LOAD, 0, 0, _locate_low_half(0)), (OP_JUMP_GREATER, 0, 1, groups), (OP_RETURN, 0, 0, REFUSE)]
        steps += _match_call(number, [*of_a_user, *_refuse_unless_own(1, pid)])
    return [*steps, (OP_RETURN, 0, 0, ALLOW)]


def _match_call(number: int, steps: list[FilterStep]) -> list[FilterStep]:
    return [(OP_JUMP_EQUAL, 0, len(steps), number), *steps]


def _refuse_unless_own(argument: int, pid: int) -> list[FilterStep]:
    return [*_allow_if(argument, 0), *_allow_if_equal(pid), (OP_RETURN, 0, 0, REFUSE)]


def _allow_if(argument: int, value: int) -> list[FilterStep]:
    return [(OP_LOAD, 0, 0, _locate_low_half(argument)), *_allow_if_equal(value)]


def _allow_if_equal(value: int) -> list[FilterStep]:
    return [(OP_JUMP_EQUAL, 0, 1, value), (OP_RETURN, 0, 0, ALLOW)]


def _locate_low_half(argument: int) -> int:
    """Return the offset of the lower half of an argument, from which alone the kernel reads a process id (both
    architectures: little-endian)."""
    return ARGUMENTS_AT + 8 * argument
