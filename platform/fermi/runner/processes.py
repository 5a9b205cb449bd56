"""Linux processes: identity, signals, descendants, priorities. A pid alone may belong to another process by now; with
its start time it cannot. Standard library only, Python 3.9 or later."""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import signal
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_NAME, PR_SET_CHILD_SUBREAPER = 1, 4, 15, 36
MAX_ROUNDS = 100
_DEAD = (b"Z", b"X")

MAX_CHANNEL_LENGTH = 64

_libc = ctypes.CDLL(None, use_errno=True)


def read_start_time(pid: int) -> int | None:
    """Return the clock ticks from boot to the start of `pid`, or None if there is no such process or it is a zombie.
    Together with the pid it identifies a process until the next boot."""
    fields = _read_living(pid)
    return int(fields[19]) if fields else None


def read_words(pid: int, name: str) -> list[str]:
    """Return the words of `/proc/PID/cmdline` or `/proc/PID/environ`, without empty ones; none for a process that has
    ended or belongs to another user."""
    with contextlib.suppress(OSError), open(f"/proc/{pid}/{name}", "rb") as file:
        return [word for word in file.read().decode(errors="replace").split("\0") if word]
    return []


def set_process_name(name: str) -> None:
    """Set the name that tools show of this process: 15 characters (proc_pid_comm(5)). Children inherit it."""
    _libc.prctl(PR_SET_NAME, name.encode()[:15], 0, 0, 0)


def read_process_name(pid: int) -> str:
    """Return the name of a process, or an empty string if it has ended."""
    with contextlib.suppress(OSError), open(f"/proc/{pid}/comm", encoding="utf-8", errors="replace") as file:
        return file.read().rstrip("\n")
    return ""


def read_boot_id() -> str:
    """Return the id of the current boot."""
    with open("/proc/sys/kernel/random/boot_id", encoding="utf-8") as file:
        return file.read().strip()


def is_alive(identity: Mapping[str, Any] | None) -> bool:
    """Return True if the process lives. `identity`: `{"pid": …, "start_time": …}` as a runner wrote it, in this
    boot."""
    return identity is not None and bool(identity["pid"]) and read_start_time(identity["pid"]) == identity["start_time"]


def send_signal(identity: Mapping[str, Any], number: signal.Signals) -> bool:
    """Signal exactly that process: its descriptor is opened first, the start time checked after. Return False if it is
    gone."""
    try:
        descriptor = os.pidfd_open(identity["pid"])
    except ProcessLookupError:
        return False
    try:
        if not is_alive(identity):
            return False
        signal.pidfd_send_signal(descriptor, number)
        return True
    except ProcessLookupError:
        return False
    finally:
        os.close(descriptor)


def list_session_members(leaders: Iterable[Mapping[str, Any]]) -> list[dict[str, int]]:
    """Return the living processes in the sessions that `leaders` opened. A leader's pid is not reused while its session
    has members; if it was reused after the session died out, the new leader's start time differs, and its session is
    left out."""
    by_pid = {leader["pid"]: leader["start_time"] for leader in leaders if leader["pid"]}
    strangers = {pid for pid, began in by_pid.items() if read_start_time(pid) not in (began, None)}
    ours = by_pid.keys() - strangers
    if not ours:
        return []
    return [
        {"pid": pid, "start_time": int(fields[19])} for pid, fields in list_living_processes() if int(fields[3]) in ours
    ]


def is_within(pid: int, leader: int) -> bool:
    """Return True if the process is in the session of `leader`, or descends from it. Raises OSError if it has ended."""
    if os.getsid(pid) == leader:
        return True
    met = set[int]()
    while pid > 1 and pid not in met:
        met.add(pid)
        fields = _read_stat(pid)
        pid = int(fields[1]) if fields else 0
        if pid == leader:
            return True
    return False


def list_descendants() -> dict[int, list[bytes]]:
    """Return all descendants of this process: by pid, the fields of /proc/<pid>/stat after the name (see
    `list_living_processes`). Zombies are among them (state Z): they have a pid, too."""
    by_parent: dict[int, list[tuple[int, list[bytes]]]] = {}
    for pid, fields in _list_processes():
        by_parent.setdefault(int(fields[1]), []).append((pid, fields))
    found: dict[int, list[bytes]] = {}
    wanted = [os.getpid()]
    while wanted:
        below = by_parent.pop(wanted.pop(), [])
        found.update(below)
        wanted += [pid for pid, _ in below]
    return found


def list_living_descendants() -> list[int]:
    """Return the pids of living descendants."""
    return [pid for pid, fields in list_descendants().items() if fields[0] not in _DEAD]


def kill_descendants() -> None:
    """Kill all descendants, a process group at once: fork(2) creates no child while a signal is pending, so no process
    of a group escapes. What leaves its group faster than it is killed, the next call finds."""
    own, killed = os.getpgid(0), set[int]()
    with raise_priority():
        for _ in range(MAX_ROUNDS):
            living = {pid: int(fields[2]) for pid, fields in list_descendants().items() if fields[0] not in _DEAD}
            if living.keys() <= killed:
                return
            for group in {*living.values()} - {own}:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(group, signal.SIGKILL)
            for pid in living:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            killed.update(living)


@contextlib.contextmanager
def raise_priority() -> Iterator[None]:
    """Run the block before all processes without real-time priority, if permitted (to root): among thousands of forking
    processes this thread would get no time otherwise. Children do not inherit it (sched(7), SCHED_RESET_ON_FORK)."""
    before = None
    with contextlib.suppress(OSError, AttributeError):  # not every C library has it
        before = os.sched_getscheduler(0)
        os.sched_setscheduler(0, os.SCHED_RR | os.SCHED_RESET_ON_FORK, os.sched_param(1))
    try:
        yield
    finally:
        with contextlib.suppress(OSError, AttributeError):
            if before is not None:
                os.sched_setscheduler(0, before, os.sched_param(0))


def signal_thread(pid: int, thread: int, number: int) -> bool:
    """Signal one thread of the process (tgkill(2)). Return False if that is not possible."""
    with contextlib.suppress(AttributeError):  # not every C library has it
        return _libc.tgkill(pid, thread, number) == 0
    return False


def read_status_fields(pid: int, thread: int | None = None) -> dict[str, str]:
    """Return the fields of /proc/<pid>/status; counts of switches and signals are those of the main thread, or of
    `thread`. Raises OSError."""
    path = f"/proc/{pid}/status" if thread is None else f"/proc/{pid}/task/{thread}/status"
    with open(path, encoding="utf-8", errors="replace") as file:
        return {name: value.strip() for name, _, value in (line.partition(":") for line in file)}


def read_wait_channel(pid: int, thread: int) -> str:
    """Return the kernel function in which a thread waits (proc(5), wchan); empty if it does not wait, or the kernel
    does not report it."""
    with (
        contextlib.suppress(OSError),
        open(f"/proc/{pid}/task/{thread}/wchan", encoding="ascii", errors="replace") as file,
    ):
        found = file.read().strip()[:MAX_CHANNEL_LENGTH]
        return "" if found == "0" else found
    return ""


def adopt_orphans() -> None:
    """Make this process the parent of its descendants' orphans, so that `list_descendants` finds them."""
    _libc.prctl(PR_SET_CHILD_SUBREAPER, 1)


def die_with_parent() -> None:
    """Have this process killed when its parent ends. A change of user resets it."""
    _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def use_batch_scheduling() -> None:
    """Do not let this process, and its children, preempt computing processes when it wakes up (sched(7)). More ranks
    than cores, whose threads wake each other all the time, are a tenth faster with it. Does nothing if it is not
    permitted, or if another policy was set."""
    with contextlib.suppress(OSError, AttributeError):  # not every C library has it
        if os.sched_getscheduler(0) == os.SCHED_OTHER:
            os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))


def raise_oom_score() -> None:
    """Make the kernel kill this process, and its children, before the runner and the platform when a machine has no
    memory left: theirs is 0, or what a container engine gave all of them (proc_pid_oom_score_adj(5))."""
    with contextlib.suppress(OSError, ValueError), open("/proc/self/oom_score_adj", "r+", encoding="ascii") as file:
        now = int(file.read())
        file.seek(0)
        file.write(str(min(1000, max(now, 0) + 500)))


def deny_tracing() -> None:
    """Deny other processes of this user to write to our output or read our memory through /proc, unless they have
    CAP_SYS_PTRACE (which containers do not have). Executing a program resets it for children."""
    _libc.prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)


def refuse_tracers() -> None:
    """Call `deny_tracing` for the platform's own processes: files of /proc by which others of this user change a
    process (oom_score_adj, autogroup, timerslack_ns) become root's as well (proc(5)). Does nothing if FERMI_TRACEABLE
    is 1, for debuggers and profilers; nor if /proc hides processes that cannot be traced (hidepid), because then the
    platform's processes would not find each other."""
    if os.environ.get("FERMI_TRACEABLE", "0") in ("", "0") and not _hides_processes():
        deny_tracing()


def _hides_processes() -> bool:
    try:
        with open("/proc/self/mountinfo", encoding="utf-8", errors="replace") as file:
            return any(" /proc " in line and re.search(r"hidepid=(?!0|off)", line) for line in file)
    except OSError:
        return True


def allow_tracing() -> None:
    """Undo `deny_tracing` of the parent in a child that has not executed its own program yet."""
    _libc.prctl(PR_SET_DUMPABLE, 1, 0, 0, 0)


def list_living_processes() -> Iterable[tuple[int, list[bytes]]]:
    """Return each living process with the fields of /proc/<pid>/stat after its name: state, parent, group, session, …
    threads (17), start time (19), resident pages (21)."""
    return ((pid, fields) for pid, fields in _list_processes() if fields[0] not in _DEAD)


def _list_processes() -> Iterator[tuple[int, list[bytes]]]:
    for name in os.listdir("/proc"):
        if name.isdigit() and (fields := _read_stat(int(name))):
            yield int(name), fields


def _read_living(pid: int) -> list[bytes] | None:
    fields = _read_stat(pid)
    return None if fields is None or fields[0] in _DEAD else fields


def _read_stat(pid: int) -> list[bytes] | None:
    """Return the fields of /proc/<pid>/stat after the name: state, parent, group, session, …"""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
