"""Containers: real local processes, and scripted ones. Both tell `ended(code)` once, from a thread of their own."""

import contextlib
import errno
import functools
import json
import os
import secrets
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from tests.fakes.kubernetes.kubelet.logs import Log

SHIM = Path(__file__).with_name("shim.py")
ROOT = Path(__file__).resolve().parents[4]
HOME = "/home/dev"
"""Of whom a container that stands apart runs as."""
START_SECONDS = 10.0
"""How long a signal waits for a process that another thread is about to start."""
Ended = Callable[[int, str], None]
"""Exit code, and the reason that goes with it ("" = by the code)."""


@dataclass(frozen=True)
class Runs:
    """The container's command as a local process. `apart`: with processes and files of its own, as far as this machine
    lets us (`namespaces`)."""

    apart: bool = False


@dataclass(frozen=True)
class Sleeps:
    """Running, with no process, until it is asked to end; `deaf` ones wait for the kill."""

    deaf: bool = False
    lines: tuple[str, ...] = ()


@dataclass(frozen=True)
class Exits:
    """Prints `lines`, runs for so many seconds, and ends. Code 137 with reason OOMKilled: the kernel's doing."""

    code: int = 0
    after: float = 0.0
    lines: tuple[str, ...] = ()
    reason: str = ""


@dataclass(frozen=True)
class Waits:
    """Never starts: the container waits for such a reason (ImagePullBackOff, CreateContainerConfigError, …). `event`:
    what an event alone has the message of, beside ContainerCreating (FailedCreatePodSandBox and others; see
    kubernetes/kubernetes, pkg/kubelet/events/event.go)."""

    reason: str
    message: str = ""
    event: str = ""


@dataclass(frozen=True)
class Evicted:
    """The kubelet throws the pod out."""

    message: str = "The node was low on resource: memory. Threshold quantity: 100Mi, available: 40Mi."


Script = Runs | Sleeps | Exits | Waits | Evicted


@dataclass
class Container:
    """One container of one pod. `code` is None while it runs."""

    name: str
    ended: Ended
    log: Log = field(default_factory=Log)
    code: int | None = None
    reason: str = ""
    started_at: float = field(default_factory=time.time)
    ended_at: float = 0.0
    pid: int | None = None
    kill_timer: threading.Timer | None = None
    id: str = field(default_factory=lambda: secrets.token_hex(32))
    """As containerd names it."""
    _asked_at: float | None = None
    _told: tuple[int, str] | None = None
    """The exit code and the reason that its end is to have."""

    def terminate(self) -> None:
        """SIGTERM."""

    def kill(self) -> None:
        """SIGKILL, to all of it."""

    def kill_as(self, code: int, reason: str) -> None:
        """SIGKILL, to all of it, which then has ended with this code for this reason."""
        self._told = code, reason
        self.kill()

    def stop(self, grace: float) -> None:
        """SIGTERM once, SIGKILL after the grace; a later, shorter grace wins."""
        if self.code is not None:
            return
        if self._asked_at is None:
            self.terminate()
        due = time.monotonic() + grace
        if self._asked_at is None or due < self._asked_at:
            self._asked_at = due
            if self.kill_timer:
                self.kill_timer.cancel()
            self.kill_timer = threading.Timer(grace, self.kill)
            self.kill_timer.daemon = True
            self.kill_timer.start()

    def finish(self, code: int, reason: str = "") -> None:
        if self.code is None:
            self.code, self.reason = self._told or (code, reason)
            self.ended_at = time.time()
            if self.kill_timer:
                self.kill_timer.cancel()
            self.log.close()
            self.ended(self.code, self.reason)


class Scripted(Container):
    def start(self, script: Sleeps | Exits) -> None:
        self._script = script
        for line in script.lines:
            self.log.write(line.encode())
        if isinstance(script, Exits):
            timer = threading.Timer(script.after, self.finish, (script.code, script.reason))
            timer.daemon = True
            timer.start()

    def terminate(self) -> None:
        if not (isinstance(self._script, Sleeps) and self._script.deaf):
            threading.Thread(target=self.finish, args=(143,), daemon=True).start()

    def kill(self) -> None:
        threading.Thread(target=self.finish, args=(137,), daemon=True).start()


def base(home: str, hostname: str) -> dict[str, str]:
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    return {"PATH": path, "HOME": home, "LANG": "C.UTF-8", "HOSTNAME": hostname}


Namespaces = Literal["own", "mapped", ""]


def namespaces() -> Namespaces:
    """The best that this machine lets us have for containers: what root has, what an ordinary user may have with a
    user namespace, or none."""
    kinds: tuple[Namespaces, ...] = ("own", "mapped")
    return next((kind for kind in kinds if has_namespaces(kind)), "")


@functools.cache
def has_namespaces(kind: Namespaces) -> bool:
    """Whether containers can have them here."""
    if not kind or (kind == "own" and os.geteuid() != 0):
        return not kind
    with tempfile.TemporaryDirectory() as scratch:
        one = Process("probe", lambda *_: None)
        files = rootfs(Path(scratch) / "root", [], "probe", kind)
        one.start(["true"], base(HOME, "probe"), "/", rootfs=files)
        return one.wait() == 0


def rootfs(
    folder: Path, mounts: Sequence[Mapping[str, Any]], hostname: str, kind: Namespaces, *,
    folders: Sequence[str] = (), read_only: bool = False, shm: Path | None = None,
) -> dict[str, Any]:  # fmt: skip
    """As `rootfs.py` takes it. `folder` is made; `folders`: of the container's own."""
    folder.mkdir(parents=True)
    shm = shm or folder.with_name(f"{folder.name}.shm")
    shm.mkdir(exist_ok=True)
    shm.chmod(0o1777)
    keep = {os.path.realpath(path) for path in (sys.prefix, sys.base_prefix, ROOT)}
    return {
        "folder": str(folder), "mounts": list(mounts), "keep": sorted(keep), "shm": str(shm), "hostname": hostname,
        "readOnly": read_only, "mapped": kind == "mapped", "folders": list(folders),
    }  # fmt: skip


@dataclass
class Process(Container):
    _process: subprocess.Popen[bytes] | None = None
    _begun: threading.Event = field(default_factory=threading.Event)

    def start(
        self, command: list[str], env: Mapping[str, str], cwd: str, *, python: str = "",
        user: Mapping[str, Any] | None = None, rootfs: Mapping[str, Any] | None = None,
    ) -> None:  # fmt: skip
        """`user`: Popen's `user`, `group`, `extra_groups`, where it is not ours; `python`: what that one can run.
        `rootfs`: as `rootfs.py` takes it, for a container with namespaces of its own."""
        self._lock = threading.Lock()
        self._control, theirs = socket.socketpair()
        plan = {"command": command, "env": dict(env), "cwd": cwd, "rootfs": rootfs}
        if user and rootfs:
            plan |= {"user": user["user"], "group": user["group"], "groups": user["extra_groups"]}
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGUSR1})
        try:  # the shim begins with them blocked, so that one that comes early waits for it
            self._process = subprocess.Popen(
                [python or sys.executable, "-I", "-S", str(SHIM), "--control", str(theirs.fileno())], cwd="/",
                pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT, start_new_session=True, **({} if rootfs else user or {}),
            )  # fmt: skip
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
            theirs.close()
            self._begun.set()
        self.pid = self._process.pid
        with contextlib.suppress(OSError):  # it has ended already
            _send(self._control, plan, [])
        threading.Thread(target=self._follow, daemon=True).start()

    def execute(self, command: Sequence[str], env: Mapping[str, str], cwd: str) -> "Execution":
        """Begins a further process. Raises OSError as execve(2) does, and ProcessLookupError when all have ended."""
        one = Execution()
        try:
            with self._lock:
                one.start(self._control, {"command": list(command), "env": dict(env), "cwd": cwd})
        except OSError:
            one.close()
            raise
        return one

    def _follow(self) -> None:
        assert self._process
        assert self._process.stdout
        for line in self._process.stdout:
            self.log.write(line.removesuffix(b"\n"))
        code = self.wait()
        self._control.close()
        self.finish(code)

    def wait(self) -> int:
        assert self._process
        return self._process.wait()

    def terminate(self) -> None:
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        self._signal(signal.SIGUSR1)

    def _signal(self, number: int) -> None:
        """Send a signal to the shim, which another thread may be about to start."""
        if self._begun.wait(START_SECONDS) and self._process:
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(number)


class Execution:
    """A further process of a container. Whoever lets go of its output leaves it unread: it waits when the pipe is full
    (containerd, cmd/containerd-shim-runc-v2/process/io.go, copyPipes: the shim holds both ends)."""

    def __init__(self) -> None:
        (read, self.stdin), (self.stdout, write), (self.stderr, complain) = os.pipe(), os.pipe(), os.pipe()
        self._answers, told = socket.socketpair()
        self._ours, self._theirs = {self.stdin, self.stdout, self.stderr}, [read, write, complain, told.detach()]
        self._said = self._answers.makefile("rb")
        self._process: int | None = None

    def start(self, control: socket.socket, request: Mapping[str, Any]) -> None:
        """Raises OSError as execve(2) does, and ProcessLookupError when the container has ended."""
        try:
            _send(control, request, self._theirs)
        except OSError:
            raise ProcessLookupError(errno.ESRCH, os.strerror(errno.ESRCH)) from None
        finally:
            _close(self._theirs)
        answer = json.loads(self._said.readline() or b"{}")
        if "pid" not in answer:
            number = int(answer.get("errno") or errno.ESRCH)
            raise OSError(number, os.strerror(number))
        with contextlib.suppress(ProcessLookupError):  # it has ended already
            self._process = os.pidfd_open(answer["pid"])

    def kill(self) -> None:
        """SIGKILL, to this process alone."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._process, signal.SIGKILL)

    def wait(self) -> int:
        """As subprocess' `returncode`. Without an answer it was killed with its container's supervisor."""
        try:
            return int(json.loads(self._said.readline() or b"{}").get("code", -signal.SIGKILL))
        except ConnectionError:
            return -signal.SIGKILL

    @property
    def stdin_ended(self) -> bool:
        return self.stdin not in self._ours

    def end_input(self) -> None:
        self._ours.discard(self.stdin)
        os.close(self.stdin)

    def close(self) -> None:
        _close(self._ours)
        if self._process is not None:
            os.close(self._process)
        self._said.close()
        self._answers.close()


def _close(descriptors: set[int] | list[int]) -> None:
    while descriptors:
        os.close(descriptors.pop())


def _send(control: socket.socket, request: Mapping[str, Any], descriptors: Sequence[int]) -> None:
    body = json.dumps(request).encode()
    socket.send_fds(control, [struct.pack("<I", len(body))], descriptors)
    control.sendall(body)
