"""Processes on Linux. A pid alone may be somebody else's by now; with its start time it cannot be. Standard library
only, Python 3.9 or later."""

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

MAX_CHANNEL = 64

_libc = ctypes.CDLL(None, use_errno=True)


def start_time(pid: int) -> int | None:
    """Clock ticks from boot to the start of `pid`; None when there is no such process or it is a zombie. Together with
    the pid it names a process for ever (until the next boot)."""
    fields = _living(pid)
    return int(fields[19]) if fields else None


def read_words(pid: int, name: str) -> list[str]:
    """Returns what `/proc/PID/cmdline` or `/proc/PID/environ` holds, without what is empty; nothing of a process that
    has ended or is another user's."""
    with contextlib.suppress(OSError), open(f"/proc/{pid}/{name}", "rb") as file:
        return [word for word in file.read().decode(errors="replace").split("\0") if word]
    return []


def set_name(name: str) -> None:
    """What tools show of this process: 15 letters (proc_pid_comm(5)). Its children have it, too."""
    _libc.prctl(PR_SET_NAME, name.encode()[:15], 0, 0, 0)


def name_of(pid: int) -> str:
    """Returns it; "" where the process has ended."""
    with contextlib.suppress(OSError), open(f"/proc/{pid}/comm", encoding="utf-8", errors="replace") as file:
        return file.read().rstrip("\n")
    return ""


def boot_id() -> str:
    with open("/proc/sys/kernel/random/boot_id", encoding="utf-8") as file:
        return file.read().strip()


def is_alive(identity: Mapping[str, Any] | None) -> bool:
    """`identity`: `{"pid": …, "start_time": …}` as a runner wrote it, in this boot."""
    return identity is not None and bool(identity["pid"]) and start_time(identity["pid"]) == identity["start_time"]


def send_signal(identity: Mapping[str, Any], number: signal.Signals) -> bool:
    """Signals exactly that process: the descriptor is taken first, the start time checked after. False = it is gone."""
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


def session_members(leaders: Iterable[Mapping[str, Any]]) -> list[dict[str, int]]:
    """Living processes in the sessions that `leaders` opened. A leader's pid is not given away while its session has
    members; should it have been reused after the session died out, the new leader's start time tells, and its session
    is left alone."""
    by_pid = {leader["pid"]: leader["start_time"] for leader in leaders if leader["pid"]}
    strangers = {pid for pid, began in by_pid.items() if start_time(pid) not in (began, None)}
    ours = by_pid.keys() - strangers
    if not ours:
        return []
    return [{"pid": pid, "start_time": int(fields[19])} for pid, fields in all_living() if int(fields[3]) in ours]


def descendants() -> dict[int, list[bytes]]:
    """All processes that this one, or one of these, has started: by pid, what /proc/<pid>/stat says after the name (see
    `all_living`). Dead ones that nobody has waited for are among them (state Z): they hold a pid, too."""
    by_parent: dict[int, list[tuple[int, list[bytes]]]] = {}
    for pid, fields in _all():
        by_parent.setdefault(int(fields[1]), []).append((pid, fields))
    found: dict[int, list[bytes]] = {}
    wanted = [os.getpid()]
    while wanted:
        below = by_parent.pop(wanted.pop(), [])
        found.update(below)
        wanted += [pid for pid, _ in below]
    return found


def living_descendants() -> list[int]:
    return [pid for pid, fields in descendants().items() if fields[0] not in _DEAD]


def kill_descendants() -> None:
    """Kills them all, a process group at once: fork(2) gives no child to who has a signal waiting, so none of a group
    gets away. What leaves its group faster than it is killed, the next call finds."""
    own, killed = os.getpgid(0), set[int]()
    with ahead_of_others():
        for _ in range(MAX_ROUNDS):
            living = {pid: int(fields[2]) for pid, fields in descendants().items() if fields[0] not in _DEAD}
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
def ahead_of_others() -> Iterator[None]:
    """Where that is allowed (to root), this thread runs before all that is no real-time process: among thousands that
    start others it would have no time else. Its children do not (sched(7), SCHED_RESET_ON_FORK)."""
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
    """To this thread of the process alone (tgkill(2)); False where that cannot be done."""
    with contextlib.suppress(AttributeError):  # not every C library has it
        return _libc.tgkill(pid, thread, number) == 0
    return False


def status(pid: int, thread: int | None = None) -> dict[str, str]:
    """What /proc/<pid>/status says; of switches and signals, the main thread's, or this thread's. Raises OSError."""
    path = f"/proc/{pid}/status" if thread is None else f"/proc/{pid}/task/{thread}/status"
    with open(path, encoding="utf-8", errors="replace") as file:
        return {name: value.strip() for name, _, value in (line.partition(":") for line in file)}


def channel(pid: int, thread: int) -> str:
    """Where in the kernel a thread waits (proc(5), wchan); empty where it does not, or the kernel does not tell."""
    with (
        contextlib.suppress(OSError),
        open(f"/proc/{pid}/task/{thread}/wchan", encoding="ascii", errors="replace") as file,
    ):
        found = file.read().strip()[:MAX_CHANNEL]
        return "" if found == "0" else found
    return ""


def adopt_orphans() -> None:
    """What children leave behind becomes our child, so that `descendants` finds it."""
    _libc.prctl(PR_SET_CHILD_SUBREAPER, 1)


def die_with_parent() -> None:
    """Forgotten by a change of user."""
    _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def as_batch() -> None:
    """This process, and what it starts, takes no processor away from one that computes when it wakes up (sched(7)).
    More ranks than cores, whose threads wake each other all the time, are a tenth faster so. Where that is not allowed,
    or somebody has decided otherwise, all stays as it is."""
    with contextlib.suppress(OSError, AttributeError):  # not every C library has it
        if os.sched_getscheduler(0) == os.SCHED_OTHER:
            os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))


def offer_to_oom_killer() -> None:
    """Where a machine has no memory left, the kernel ends this process, and what it starts, before the runner and the
    platform: theirs is 0, or what a container engine gave all of them (proc_pid_oom_score_adj(5))."""
    with contextlib.suppress(OSError, ValueError), open("/proc/self/oom_score_adj", "r+", encoding="ascii") as file:
        now = int(file.read())
        file.seek(0)
        file.write(str(min(1000, max(now, 0) + 500)))


def keep_others_out() -> None:
    """No process of this user can write to our output or read our memory through /proc, unless it has CAP_SYS_PTRACE
    (which containers have not). Children get that back with their own program."""
    _libc.prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)


def refuse_tracers() -> None:
    """`keep_others_out`, for the platform's own processes: files of /proc by which others of this user change a process
    (oom_score_adj, autogroup, timerslack_ns) become root's as well (proc(5)). Does nothing where FERMI_TRACEABLE is 1,
    for debuggers and profilers; nor where /proc hides processes that cannot be traced (hidepid), because then the
    platform's processes would not find each other."""
    if os.environ.get("FERMI_TRACEABLE", "0") in ("", "0") and not _hides_processes():
        keep_others_out()


def _hides_processes() -> bool:
    try:
        with open("/proc/self/mountinfo", encoding="utf-8", errors="replace") as file:
            return any(" /proc " in line and re.search(r"hidepid=(?!0|off)", line) for line in file)
    except OSError:
        return True


def let_others_in() -> None:
    """What was kept out of the parent is not kept out of its child, before it has its own program."""
    _libc.prctl(PR_SET_DUMPABLE, 1, 0, 0, 0)


def all_living() -> Iterable[tuple[int, list[bytes]]]:
    """Each process, and what /proc/<pid>/stat says after its name: state, parent, group, session, … threads (17), start
    time (19), resident pages (21)."""
    return ((pid, fields) for pid, fields in _all() if fields[0] not in _DEAD)


def _all() -> Iterator[tuple[int, list[bytes]]]:
    for name in os.listdir("/proc"):
        if name.isdigit() and (fields := _stat(int(name))):
            yield int(name), fields


def _living(pid: int) -> list[bytes] | None:
    fields = _stat(pid)
    return None if fields is None or fields[0] in _DEAD else fields


def _stat(pid: int) -> list[bytes] | None:
    """What /proc/<pid>/stat says after the name: state, parent, group, session, …"""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
