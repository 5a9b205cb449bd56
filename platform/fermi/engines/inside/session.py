"""Requests over one stream to `fermi.inside` in an environment. The other end is under the control of the environment's
user: only answers of the right shape are used, and none may be large."""

import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any, Self

from fermi.engines.inside.bundle import build_bundle, build_preamble
from fermi.inside import protocol
from fermi.jobs.errors import BackendError

ANSWER_SECONDS = 30.0
MAX_GREETING_BYTES = 1 << 16
"""Bytes before the first message: profiles and modules may print."""
MAX_TEXT_CHARS = 300
KNOWN_CODES = (
    "INSIDE_DISK_UNUSABLE",
    "INSIDE_FILE_BROKEN",
    "INSIDE_FILE_CHANGED",
    "INSIDE_INSTALL_SLOW",
    "INSIDE_KERNEL_GONE",
    "INSIDE_KERNEL_LIVES",
    "INSIDE_KERNEL_UNKNOWN",
    "INSIDE_NO_PIP",
    "INSIDE_PYTHON_SLOW",
    "INSIDE_PYTHON_UNUSABLE",
    "INSIDE_REQUEST_INVALID",
    "INSIDE_RUNNER_FAILED",
    "INSIDE_RUNNER_KILLED",
    "INSIDE_RUNNER_SLOW",
    "INSIDE_UNKNOWN_REQUEST",
)
"""Codes that `fermi.inside` may answer with."""
TRANSIENT_CODES = (
    "INSIDE_DISK_UNUSABLE",
    "INSIDE_FILE_BROKEN",
    "INSIDE_FILE_CHANGED",
    "INSIDE_INSTALL_SLOW",
    "INSIDE_PYTHON_SLOW",
    "INSIDE_RUNNER_KILLED",
    "INSIDE_RUNNER_SLOW",
)
"""Codes of problems that may pass by themselves."""


class InsideError(BackendError):
    """The environment refused a request, or answered something that cannot be parsed."""


class InsideSession:
    """Session over a stream that an engine has opened to `bootstrap.py`. Closes the stream at the end."""

    def __init__(self, stream: socket.socket, seconds: float = ANSWER_SECONDS) -> None:
        self._stream, self._seconds, self._number = stream, seconds, 0
        self._sending = threading.Lock()
        stream.settimeout(seconds)
        self._read = stream.makefile("rb")
        self.came: Callable[[dict[str, Any], bytes], None] = lambda said, data: None
        """Called with each message that comes between a request and its answer."""

    def greet(self) -> Self:
        """Wait until `fermi.inside` is ready, send the bundle where it is missing, and return the session. Close it and
        raise InsideError where it does not become ready."""
        try:
            self._wait_ready()
        except BaseException:
            self.close()
            raise
        return self

    def _wait_ready(self) -> None:
        heard = 0
        try:
            self._stream.sendall(build_preamble())
            while line := self._read.readline(protocol.MAX_LINE_BYTES):
                if line == protocol.READY_LINE:
                    return
                if line == protocol.SEND_LINE:
                    data = build_bundle().data
                    self._stream.sendall(b"%d\n" % len(data) + data)
                elif line.startswith(b"fermi: no room"):
                    raise InsideError("INSIDE_NO_ROOM", permanent=True)
                elif line.startswith(b"fermi: old "):
                    raise InsideError("INSIDE_PYTHON_OLD", permanent=True, found=_decode_text(line[11:]))
                elif line.startswith(b"fermi: no python"):
                    raise InsideError("INSIDE_NO_PYTHON", permanent=True)
                heard += len(line)
                if heard > MAX_GREETING_BYTES:
                    break
        except OSError as error:
            raise self._silent(error) from error
        raise InsideError("INSIDE_SILENT", why="it ended, or said something else")

    def request(self, command: str, data: bytes = b"", **request: Any) -> dict[str, Any]:
        """Send a request and return the answer. Raise InsideError with the environment's code where it refuses."""
        try:
            number = self.send(command, data, **request)
            for answer, more in self.messages():
                if answer.get("id") == number:
                    return _check_answer(answer)
                self.came(answer, more)
        except OSError as error:
            raise self._silent(error) from error
        raise InsideError("INSIDE_SILENT", why="the stream ended")

    def send(self, command: str, data: bytes = b"", **request: Any) -> int:
        """Send a request without waiting; return the number that its answer has. Raise OSError."""
        with self._sending:
            self._number += 1
            said = {"id": self._number, "ask": command, **request}
            self._stream.sendall(protocol.encode_frame(said, data) if data else protocol.encode_line(said))
            return self._number

    def greet_again(self) -> None:
        """Send a sign of life. Raise OSError."""
        with self._sending:
            self._stream.sendall(protocol.encode_line({"alive": True}))

    def messages(self, seconds: float | None = None) -> Iterator[tuple[dict[str, Any], bytes]]:
        """Yield messages until the stream ends. `seconds`: without a message for so long counts as its end. Raise
        InsideError where something else comes, and OSError."""
        self._stream.settimeout(seconds or self._seconds)
        try:
            while (came := protocol.read_message(self._read)) is not None:
                yield came
        except protocol.ProtocolError as error:
            raise InsideError("INSIDE_SILENT", why=str(error)) from error

    def release(self) -> socket.socket:
        """Return the stream itself, for a program that sends nothing until it has received something."""
        self._stream.settimeout(None)
        return self._stream

    def close(self) -> None:
        """Close the stream; may be called by another thread, and ends the reading."""
        with suppress(OSError):
            self._stream.shutdown(socket.SHUT_RDWR)
        self._stream.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @staticmethod
    def _silent(error: OSError) -> InsideError:
        why = "no answer in time" if isinstance(error, TimeoutError) else error.strerror or str(error)
        return InsideError("INSIDE_SILENT", why=why)


def _check_answer(answer: Mapping[str, Any]) -> dict[str, Any]:
    if answer.get("ok") is True:
        return dict(answer)
    code, params = answer.get("code"), answer.get("params")
    told = {str(name)[:40]: _simplify(value) for name, value in params.items()} if isinstance(params, dict) else {}
    if not isinstance(code, str) or code not in KNOWN_CODES:
        code = "INSIDE_REFUSED"
    raise InsideError(code, permanent=code not in TRANSIENT_CODES, **told)


def _simplify(value: Any) -> Any:
    return value if isinstance(value, int | float | bool) or value is None else str(value)[:2000]


def _decode_text(line: bytes) -> str:
    return line.decode(errors="replace").strip()[:MAX_TEXT_CHARS]
