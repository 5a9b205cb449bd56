"""Containers: real local processes, and scripted ones. Both tell `ended(code)` once, from a thread of their own."""

import contextlib
import os
import secrets
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.fakes.kubernetes.kubelet.logs import Log

SHIM = Path(__file__).with_name("shim.py")
Ended = Callable[[int, str], None]
"""Exit code, and the reason that goes with it ("" = by the code)."""


@dataclass(frozen=True)
class Runs:
    """The container's command as a local process."""


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
    def begin(self, script: Sleeps | Exits) -> None:
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


def base(cwd: Path, name: str) -> dict[str, str]:
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    return {"PATH": path, "HOME": str(cwd), "LANG": "C.UTF-8", "HOSTNAME": name}


class Process(Container):
    def begin(
        self, command: list[str], env: dict[str, str], cwd: Path, python: str, user: Mapping[str, Any]
    ) -> None:  # fmt: skip
        """`user`: Popen's `user`, `group`, `extra_groups`, where it is not ours; `python`: what that one can run."""
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGUSR1})
        try:  # the shim begins with them blocked, so that one that comes early waits for it
            self._process = subprocess.Popen(
                [python or sys.executable, "-I", "-S", str(SHIM), *command], cwd=cwd,
                env={**base(cwd, self.name), **env},
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
                **user,
            )  # fmt: skip
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        self.pid = self._process.pid
        threading.Thread(target=self._follow, daemon=True).start()

    def _follow(self) -> None:
        assert self._process.stdout
        for line in self._process.stdout:
            self.log.write(line.removesuffix(b"\n"))
        self.finish(self._process.wait())

    def terminate(self) -> None:
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        self._signal(signal.SIGUSR1)

    def _signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(number)
