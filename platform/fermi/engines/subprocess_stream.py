"""Streams to programs that run elsewhere: a process of this machine connects each (`srun`, or the program itself).

The process is in a session of its own and lives as long as its stream does: the holder of the other end ends it by
closing that, or by ending.
"""

from __future__ import annotations

import socket
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence

from fermi.envd import protocol

MAX_GREETING_BYTES = (
    1 << 16
)  # bytes before a program reports that it is ready: output of profiles, modules and the like
MAX_STDERR_CHARS = 2000  # characters of standard error that are kept
DRAIN_SECONDS = 1.0


class ProgramNotReadyError(Exception):
    """No program has reported that it is ready. `said`: the end of its standard error."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.said = message


def open_ready_stream(command: Sequence[str], env: Mapping[str, str], seconds: float) -> socket.socket:
    """Return the stream once the program has reported that it is ready (`protocol.READY`). Raise
    ProgramNotReadyError."""
    stream, process, complaints = open_stream(command, env)
    if wait_until_ready(stream, seconds):
        return stream
    stream.close()
    process.terminate()
    raise ProgramNotReadyError(complaints.read_text())


def open_stream(
    command: Sequence[str], env: Mapping[str, str]
) -> tuple[socket.socket, subprocess.Popen[bytes], StderrTail]:
    """Return the stream at once, with the process that connects it. Raise ProgramNotReadyError where there is no such
    program."""
    ours, theirs = socket.socketpair()
    with theirs:
        try:
            process = subprocess.Popen(
                command, stdin=theirs.fileno(), stdout=theirs.fileno(), stderr=subprocess.PIPE, cwd="/", env=dict(env),
                start_new_session=True,
            )  # fmt: skip
        except OSError as error:
            ours.close()
            raise ProgramNotReadyError(f"{command[0]}: {error.strerror}") from error
    return ours, process, StderrTail(process)


def wait_until_ready(stream: socket.socket, seconds: float) -> bool:
    """Return whether the program at the other end reports in time that it is ready."""
    limit, heard = time.monotonic() + seconds, b""
    try:
        while not heard.endswith(protocol.READY_LINE) and len(heard) < MAX_GREETING_BYTES:
            stream.settimeout(max(0.001, limit - time.monotonic()))
            if not (more := stream.recv(1 << 12)):
                return False
            heard += more
        stream.settimeout(None)
    except OSError:
        return False
    return heard.endswith(protocol.READY_LINE)


class StderrTail:
    """End of what a process writes to its standard error. Also waits for the process, which would stay as a zombie."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process, self._heard = process, b""
        self._thread = threading.Thread(target=self._hear, daemon=True)
        self._thread.start()

    def _hear(self) -> None:
        assert self._process.stderr
        with self._process.stderr as errors:
            while more := errors.read1(1 << 12):  # type: ignore[attr-defined]
                self._heard = (self._heard + more)[-MAX_STDERR_CHARS:]
        self._process.wait()

    def read_text(self) -> str:
        """Return the last `MAX_STDERR_CHARS` characters, once the process has closed its standard error or a second has
        passed."""
        self._thread.join(DRAIN_SECONDS)
        return self._heard.decode(errors="replace").strip()
