"""What a filtered process can change of another one: nothing. Of itself, what training needs."""

import json
import os
import platform
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fermi.runner import seccomp

TRY = """
import ctypes, json, os, resource, struct, subprocess, sys, threading
from fermi.runner import seccomp

other, filtered = int(sys.argv[1]), sys.argv[2] == "filtered"
libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long
machine = seccomp.ARCHITECTURES[os.uname().machine]
libc.prctl(38, 1, 0, 0, 0)  # no_new_privs
if filtered:
    seccomp.install_filter()

def call(number, *arguments):
    if libc.syscall(ctypes.c_long(number), *map(ctypes.c_long, arguments)) < 0:
        raise OSError(ctypes.get_errno(), "")

IDLE = ctypes.create_string_buffer(struct.pack("=IIQiIQQQ", 48, os.SCHED_IDLE, 0, 0, 0, 0, 0, 0))
NOTHING = os.sched_param(0)
tried = {
    "read limits": lambda pid: resource.prlimit(pid, resource.RLIMIT_NOFILE),
    "prlimit": lambda pid: resource.prlimit(pid, resource.RLIMIT_CORE, (0, 0)),
    "setpriority": lambda pid: os.setpriority(os.PRIO_PROCESS, pid, 5),
    "setpriority, upper half": lambda pid: call(machine.setpriority, 1 << 32, pid | 1 << 32, 6),
    "setpriority, group": lambda pid: os.setpriority(os.PRIO_PGRP, pid and os.getpgid(pid), 7),
    "ioprio_set": lambda pid: call(machine.ioprio_set, 1, pid, 3 << 13),
    "ioprio_set, group": lambda pid: call(machine.ioprio_set, 2, pid and os.getpgid(pid), 3 << 13),
    "sched_setscheduler": lambda pid: os.sched_setscheduler(pid, os.SCHED_BATCH, NOTHING),
    "sched_setparam": lambda pid: os.sched_setparam(pid, NOTHING),
    "sched_setattr": lambda pid: call(machine.sched_setattr, pid, ctypes.addressof(IDLE), 0),
}

def refused(pid):
    found = {}
    for name, attempt in tried.items():
        try:
            attempt(pid)
        except OSError as error:
            found[name] = error.errno
    return found

def of_user(number, which):
    try:
        call(number, which, 0, 10 if which == 2 else 3 << 13)
    except OSError as error:
        return error.errno
    return 0

told = {"other": refused(other)}
one = {min(os.sched_getaffinity(other))}
os.sched_setaffinity(other, one)
told["bound"] = os.sched_getaffinity(other) == one
os.sched_setaffinity(0, one)
told["self"] = refused(0)
told["itself"] = refused(os.getpid())
told["bound itself"] = os.sched_getaffinity(0) == one
resource.setrlimit(resource.RLIMIT_NOFILE, (64, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
os.nice(1)
if filtered:  # else all processes of this user, the tests among them, would be slowed down for good
    told["user"] = [of_user(machine.setpriority, 2), of_user(machine.ioprio_set, 3)]
child = [sys.executable, "-c", f"import os; os.setpriority(os.PRIO_PROCESS, {other}, 9)"]
told["child"] = subprocess.run(child, stderr=subprocess.DEVNULL).returncode
print(json.dumps(told))
"""

OTHER_INTERFACES = """
import ctypes, mmap, os, sys
from fermi.runner import seccomp

libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long
libc.prctl(38, 1, 0, 0, 0)
if sys.argv[1] == "filtered":
    seccomp.install_filter()
print(libc.syscall(ctypes.c_long(seccomp.X32 | 39)), ctypes.get_errno(), flush=True)  # getpid of x32
code = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
code.write(bytes.fromhex("b814000000cd80c3"))  # mov $20 (getpid of i386), %eax; int $0x80; ret
print(ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(code)))())
"""

pytestmark = pytest.mark.skipif(not seccomp.is_available(), reason="this kernel takes no seccomp filter")


@pytest.fixture
def other() -> Iterator[int]:
    """A process of this user, in a group of its own."""
    with subprocess.Popen(["sleep", "600"], start_new_session=True) as process:
        yield process.pid
        process.kill()


def attempt(other: int, how: str) -> dict[str, Any]:
    """As a rank does, in a session of its own."""
    done = subprocess.run(
        [sys.executable, "-c", TRY, str(other), how],
        capture_output=True, text=True, timeout=120, start_new_session=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_without_a_filter_a_process_may_change_others_of_its_user(other: int) -> None:
    """What the test below would miss."""
    seen = attempt(other, "free")
    assert seen["other"] == {}
    assert seen["child"] == 0
    assert seen["bound"]


def test_filtered_processes_cannot_change_others(other: int) -> None:
    before: list[Any] = [
        os.getpriority(os.PRIO_PROCESS, other),
        os.sched_getscheduler(other),
        os.sched_getaffinity(other),
    ]
    seen = attempt(other, "filtered")
    changes = [
        "prlimit",
        "setpriority",
        "setpriority, upper half",
        "setpriority, group",
        "ioprio_set",
        "ioprio_set, group",
    ]  # fmt: skip (what the scheduler is told succeeds, and changes nothing)
    assert seen["other"] == dict.fromkeys(changes, 1)
    assert seen["user"] == [1, 1]
    assert seen["child"] == 1
    assert seen["bound"] is (before[2] == {min(before[2])})
    assert [
        os.getpriority(os.PRIO_PROCESS, other), os.sched_getscheduler(other), os.sched_getaffinity(other)
    ] == before  # fmt: skip


def test_a_filtered_process_may_change_itself(other: int) -> None:
    seen = attempt(other, "filtered")
    assert (seen["self"], seen["bound itself"]) == ({}, True)
    # the second time some is refused to ordinary users by the kernel: a lower nice value, to leave SCHED_IDLE
    assert seen["itself"] == attempt(other, "free")["itself"]


def test_libraries_that_name_threads_by_id_work() -> None:
    """ZeroMQ gives each of its threads the policy that it has, and ends a program where that fails."""
    program = "import ctypes, zmq; from fermi.runner import seccomp; ctypes.CDLL(None).prctl(38, 1, 0, 0, 0)\n"
    program += "seccomp.install_filter(); socket = zmq.Context().socket(zmq.REP); "
    program += "socket.bind('tcp://127.0.0.1:*'); print('on')"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert (done.stdout, done.returncode) == ("on\n", 0), done.stderr


def test_binding_a_thread_by_id_succeeds_without_effect(other: int) -> None:
    """As the C library binds threads, on whose failure OpenMP ends the program."""
    bind = "import ctypes, os, threading; from fermi.runner import seccomp; libc = ctypes.CDLL(None)\n"
    bind += "libc.prctl(38, 1, 0, 0, 0); seccomp.install_filter(); libc.pthread_self.restype = ctypes.c_void_p\n"
    bind += "mask = ctypes.create_string_buffer(b'\\1', 128)\n"
    bind += "print(libc.pthread_setaffinity_np(ctypes.c_void_p(libc.pthread_self()), 128, mask))"
    done = subprocess.run([sys.executable, "-c", bind], capture_output=True, text=True, timeout=120)
    assert (done.stdout, done.stderr) == ("0\n", "")


@pytest.mark.skipif(platform.machine() != "x86_64", reason="other interfaces of x86_64")
def test_system_calls_of_another_abi_are_refused() -> None:
    def ask(how: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-c", OTHER_INTERFACES, how], capture_output=True, text=True, timeout=120
        )

    free, filtered = ask("free"), ask("filtered")
    assert filtered.stdout.splitlines()[:1] == ["-1 38"]
    if free.returncode:
        pytest.skip("this kernel has no interface of i386")
    assert filtered.stdout.splitlines() == ["-1 38", "-38"], filtered.stderr


def test_every_jump_of_the_filter_is_valid() -> None:
    """Of each architecture, also those that the tests do not run on."""
    for machine in seccomp.ARCHITECTURES.values():
        steps = seccomp.build_filter(machine, 4711)
        for at, (operation, if_true, if_false, operand) in enumerate(steps):
            assert at + 1 + max(if_true, if_false) < len(steps) or operation == seccomp.OP_RETURN
            assert max(if_true, if_false) < 256
            assert 0 <= operand < 1 << 32
        assert steps[-1][0] == seccomp.OP_RETURN


@pytest.mark.parametrize(("given", "dumpable"), [("", "0"), ("0", "0"), ("1", "1")])
def test_a_process_that_refuses_tracers_is_not_dumpable(given: str, dumpable: str) -> None:
    program = "import ctypes; from fermi.runner.processes import refuse_tracers; refuse_tracers(); "
    program += "print(ctypes.CDLL(None).prctl(3, 0, 0, 0, 0))"
    env = {**os.environ, "FERMI_TRACEABLE": given}
    done = subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, text=True, timeout=120)
    if dumpable == "0" and "hidepid" in Path("/proc/self/mountinfo").read_text("utf-8"):
        pytest.skip("processes that cannot be traced are hidden here")
    assert done.stdout == f"{dumpable}\n", done.stderr
