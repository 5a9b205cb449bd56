"""The processes of an environment, from the fork to the last of them.

The daemon forks from its main thread; its other threads (`fermi.runner.disk_usage`, `fermi.envd.exec_session`) ask the
kernel for sizes and names, and hold no lock that a child would wait for. Orphans are adopted (PR_SET_CHILD_SUBREAPER).
Each process has the run's folder in a variable (`MARK_VARIABLE`), so processes are still found if the daemon is killed.
The run's name would not do: another platform on the machine may use the same one.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import signal
import termios
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from fermi.runner import processes
from fermi.runner.exit_codes import CANNOT_START, NOT_FOUND

MARK_VARIABLE = "FERMI_RUN"
_HANDLED = (signal.SIGCHLD, signal.SIGTERM, signal.SIGUSR1, signal.SIGINT, signal.SIGHUP, signal.SIGPIPE)


class Child:
    """A started process. `ended`: its exit code, as a shell reports it."""

    def __init__(self, pid: int, ended: asyncio.Future[int]) -> None:
        self.pid, self.ended = pid, ended
        self.start_time = processes.read_start_time(pid)

    def signal_group(self, number: int) -> None:
        """Signal its process group: it leads its session and group, and is not reaped before `ended` is known."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, number)


class Children:
    """Starts and collects processes. `confinements`: sandboxes by name ("service", "preparing"); without them, nothing
    is confined. `variables`: of all processes that run for the environment (`within`), including secrets. `limit`:
    called in each, before it is confined."""

    def __init__(
        self,
        confinements: Mapping[str, Any],
        variables: Mapping[str, str],
        on_change: Callable[[], None],
        limit: Callable[[], None] | None = None,
    ) -> None:
        self.confinements = confinements
        self.variables = variables
        self._on_change = on_change
        self._limit = limit
        self._waited: dict[int, Child] = {}

    def listen(self) -> None:
        """Adopt orphans and collect ended children from now on."""
        processes.adopt_orphans()
        asyncio.get_running_loop().add_signal_handler(signal.SIGCHLD, self.reap)

    def start(
        self, command: Sequence[str], streams: tuple[int, int, int], cwd: str, env: Mapping[str, str] | None = None,
        *, tty: bool = False, kept: Iterable[int] = (), within: str | None = "service",
    ) -> Child:  # fmt: skip
        """Start a process. `streams`: its descriptors 0, 1 and 2; the caller closes them. `kept`: further descriptors
        for it. `within`: the sandbox; None: none, without the environment's variables."""
        confinement = self.confinements.get(within) if within else None
        base = confinement.environment(os.environ) if confinement else os.environ
        own = self.variables if within else {}  # what is not confined does nothing that a variable may change
        whole = {**base, **own, **(env or {})}
        keeper = os.getpid()
        ready, not_yet = os.pipe2(os.O_CLOEXEC)
        pid = os.fork()
        if pid == 0:
            _exec_child(command, streams, cwd, whole, keeper, confinement, tty, kept, self._limit)
        os.close(not_yet)
        os.read(ready, 1)  # until it leads its session, or is gone
        os.close(ready)
        child = self._waited[pid] = Child(pid, asyncio.get_running_loop().create_future())
        self._on_change()
        return child

    def leaders(self) -> list[dict[str, Any]]:
        """Return the leaders of the sessions that living descendants are in, for a status."""
        sessions = {int(fields[3]) for fields in processes.list_descendants().values() if fields[0] != b"Z"}
        return [{"pid": pid, "start_time": processes.read_start_time(pid)} for pid in sorted(sessions)]

    def pids(self) -> list[int]:
        """Return the living descendants."""
        return processes.list_living_descendants()

    def reap(self) -> None:
        """Collect all ended children."""
        changed = False
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                break
            if pid == 0:
                break
            if child := self._waited.pop(pid, None):
                code = os.waitstatus_to_exitcode(status)
                if not child.ended.done():
                    child.ended.set_result(code if code >= 0 else 128 - code)
                changed = True
        if changed:
            self._on_change()

    def end_session(self, leader: int) -> None:
        """Kill the processes that are left in a session."""
        for pid, fields in processes.list_living_processes():
            if int(fields[3]) == leader:
                _kill_process(pid)

    async def end_all(self) -> None:
        """Kill descendants until none is left."""
        while pids := self.pids():
            for pid in pids:
                _kill_process(pid)
            await asyncio.sleep(0.01)
            self.reap()


def build_mark(folder: str) -> dict[str, str]:
    """Return the variable that marks processes of the run in this folder."""
    return {MARK_VARIABLE: os.path.realpath(folder)}


def list_marked_processes(folder: str) -> list[dict[str, Any]]:
    """Return the living processes that are marked with this folder."""
    mark = os.fsencode(f"{MARK_VARIABLE}={build_mark(folder)[MARK_VARIABLE]}")
    found = []
    for pid, fields in processes.list_living_processes():
        with contextlib.suppress(OSError), open(f"/proc/{pid}/environ", "rb") as file:
            if mark in file.read().split(b"\0"):
                found.append({"pid": pid, "start_time": int(fields[19])})
    return found


def compute_begin_time(fields: Sequence[bytes]) -> float:
    """Return when a process began, in unix seconds."""
    running = time.clock_gettime(time.CLOCK_BOOTTIME) - int(fields[19]) / os.sysconf("SC_CLK_TCK")
    return time.time() - running


def _kill_process(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def _exec_child(
    command: Sequence[str], streams: tuple[int, int, int], cwd: str, env: dict[str, str], keeper: int,
    confinement: Any, tty: bool, kept: Iterable[int], limit: Callable[[], None] | None,
) -> None:  # fmt: skip
    """Set up the child and execute the command. Never returns."""
    try:
        os.setsid()
        signal.set_wakeup_fd(-1)
        for number in _HANDLED:
            signal.signal(number, signal.SIG_DFL)
        if tty:
            fcntl.ioctl(streams[0], termios.TIOCSCTTY, 0)
        for target, source in enumerate([os.dup(stream) for stream in streams]):
            os.dup2(source, target)
        processes.raise_oom_score()
        if limit:
            limit()
        if confinement:
            confinement.enter(1)
        for descriptor in kept:
            os.set_inheritable(descriptor, True)
        processes.die_with_parent()  # after a change of user
        processes.allow_tracing()
        if os.getppid() != keeper:
            os._exit(1)
        os.chdir(cwd)
    except BaseException as error:
        os.write(2, f"fermi: {command[0]} could not be set up: {error}\n".encode())
        os._exit(CANNOT_START)
    try:
        os.execvpe(command[0], list(command), env)
    except OSError as error:
        os.write(2, f"fermi: cannot run {command[0]}: {error.strerror}\n".encode())
    except ValueError as error:  # a word or a variable that no program can be given
        os.write(2, f"fermi: cannot run it: {error}\n".encode())
    os._exit(NOT_FOUND)
