"""A process of the platform, restarted when it dies."""

import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from server import liveness, paths
from server.up import console
from server.up.pidfile import PlatformProcess

BACKOFF_SECONDS = (0.5, 1, 2, 4, 8, 15, 30)
STABLE_AFTER_SECONDS = 30  # a process that lived this long begins again with the shortest pause


class ChildProcess:
    """A process with `command` in a session of its own, so that Ctrl-C reaches the supervisor only, which decides the
    order of ending."""

    def __init__(
        self,
        name: str,
        command: Sequence[str | Path],
        env: dict[str, str],
        is_shown: Callable[[str], bool] = console.accept_all,
        inherits: Sequence[int] = (),
        *,
        is_asked: bool = False,
    ) -> None:
        """`is_shown` returns whether a line of its output is shown. `inherits`: file descriptors that it gets.
        `is_asked`: it has a connection to the supervisor for liveness requests (`server.liveness`)."""
        self.name = name
        self.wanted = is_shown
        self.command = [str(part) for part in command]
        self.env = env
        self.inherits = inherits
        self.is_asked = is_asked
        self.line: socket.socket | None = None  # the supervisor's end
        self.process: PlatformProcess | None = None
        self.on_change: Callable[[], None] = lambda: None
        self._popen: subprocess.Popen[str] | None = None
        self._stopping = threading.Event()
        self._wake = threading.Event()  # ends the pause before a start
        self._starting = threading.Lock()  # so that none is started behind the back of `stop`
        self._reader: threading.Thread | None = None

    def start(self) -> None:
        """Start it once, unless it was stopped; it is restarted only after `keep_running`."""
        with self._starting:
            if not self._stopping.is_set():
                self._start()

    def _start(self) -> None:
        theirs, env, inherits = None, self.env, self.inherits
        if self.is_asked:
            if self.line:
                self.line.close()
            self.line, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            env, inherits = {**env, liveness.LIVENESS_VARIABLE: str(theirs.fileno())}, (*inherits, theirs.fileno())
        self._popen = subprocess.Popen(
            self.command,
            env=env,
            cwd=paths.ROOT,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            errors="replace",
            start_new_session=True,
            pass_fds=inherits,
        )
        if theirs:
            theirs.close()
        self.process = PlatformProcess.from_pid(self.name, self._popen.pid)
        assert self._popen.stdout
        self._reader = threading.Thread(
            target=console.copy_output, args=(self._popen.stdout, self.name, self.wanted), daemon=True
        )
        self._reader.start()
        self.on_change()

    def poll(self) -> int | None:
        return self._popen.poll() if self._popen else None

    def drain(self) -> None:
        """Wait up to a second for the output of an ended process; a process that it started may hold the output
        open."""
        if self._reader:
            self._reader.join(1)

    def keep_running(self) -> None:
        """From now on restart it whenever it ends, after a pause that grows while it keeps ending."""
        threading.Thread(target=self._watch, daemon=True).start()

    def _watch(self) -> None:
        failures, since = 0, time.monotonic()
        while self._popen:
            code = self._popen.wait()
            if not self._wake.is_set():
                failures = 0 if time.monotonic() - since > STABLE_AFTER_SECONDS else failures
                pause = BACKOFF_SECONDS[min(failures, len(BACKOFF_SECONDS) - 1)]
                console.print_line(f"{self.name} {describe_exit(code)}; starting it again in {pause:g} s", fault=True)
                failures += 1
                self._wake.wait(pause)
            since = time.monotonic()
            with self._starting:
                if self._stopping.is_set():
                    return
                self._wake.clear()
                self._start()

    def restart(self) -> None:
        """Terminate a kept child; it is started again at once, also where it was waiting out a pause."""
        with self._starting:
            self._wake.set()
            if self._popen and self.alive():
                self._popen.terminate()

    def replace(self, grace_s: float) -> None:
        """Restart it; kill it where it does not end within `grace_s` seconds."""
        hung = self._popen
        self.restart()

        def kill() -> None:
            if hung and hung.poll() is None:
                hung.kill()

        later = threading.Timer(grace_s, kill)
        later.daemon = True
        later.start()

    def stop(self) -> None:
        """Terminate it without waiting."""
        with self._starting:
            self._stopping.set()
        self._wake.set()
        if self._popen and self.alive():
            self._popen.terminate()

    def alive(self) -> bool:
        return self._popen is not None and self._popen.poll() is None

    def kill(self) -> None:
        """Kill it and wait for its end; does nothing where it has ended."""
        if self._popen and self.alive():
            self._popen.kill()
            self._popen.wait()


def describe_exit(exit_code: int) -> str:
    """Return how a process ended, for people."""
    if exit_code < 0:
        return f"was killed by {signal.Signals(-exit_code).name}"
    return f"ended with code {exit_code}"


def build_environment(**more: str) -> dict[str, str]:
    """Return the environment variables of every process of the platform, with `more` added."""
    path = os.pathsep.join([str(paths.ROOT), str(paths.ROOT / "platform")])
    return {
        **os.environ,
        "PYTHONPATH": path,
        "PYTHONUNBUFFERED": "1",
        "MALLOC_ARENA_MAX": "1",  # threads that take turns need no heaps of their own: 12 MiB of the worker
        "DJANGO_SETTINGS_MODULE": "server.settings",
        **more,
    }
