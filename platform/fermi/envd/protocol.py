"""The protocol of the environment daemon. One connection serves one request:

    ──▶ a line of JSON     {"open": "port", "door": "jupyter"}        the service or declared port of this name
                           {"open": "port", "port": 6006}             on its loopback
                           {"open": "exec", "command": […], "cwd": "", "env": {}, "tty": {"columns": 80, "rows": 24}}
                           {"open": "code", "path": ".", "limits": {…}}             see `fermi.runner.snapshot_upload`
                           {"open": "status"}
                           {"open": "end-kernel", "kernel": "…"}
    ◀── a line of JSON     {"ok": true, …}   or   {"ok": false, "code": "PORT_CLOSED", "params": {…}}

In "exec", a `command` that is null is a login shell, and a `tty` that is null means pipes.

The daemon also requires its token: in the first line (`"token": "…"`), or in a separate line before it, which it does
not answer (`build_greeting`): so the engines' `dial` returns a stream that is ready for a request.

With "port", a client on the daemon's own machine may send `"hand": true`: the daemon then passes the descriptor of its
connection inside with the first byte of its answer (`request_with_fd`), and the connection between the two stays open
for as long as that is used. A daemon of an earlier release answers as usual, with no descriptor.

After "port" the bytes of both sides follow unchanged, and the end of one side's data is passed on. After "exec" and
"code" frames follow, in both directions: one byte of channel, four of length (big-endian), and so many bytes.

    IN         to the daemon     what the command reads
    OUT, ERR   from the daemon   what it writes; with a terminal, all of it on OUT
    CONTROL    to the daemon     JSON: {"resize": {"columns": …, "rows": …}}, {"signal": "INT"}, {"end": true} = no more
    CONTROL    from the daemon   JSON, and the last frame: {"exit": code}; of a command that was killed 128 + signal
                                 Before, of a login shell that has printed nothing in its terminal for three seconds,
                                 once: {"starting": {"files": ["~/.bashrc"], "command": "…"}}, what it reads and runs

A WebSocket of the platform carries the same: the two lines as text messages; then of "port" the bytes as binary
messages, and `{"end": true}` as a text message when a side has no more; of "exec" one frame a binary message, without
its length, and from the client `{"flow": false}` as a text message if nothing more may come until `{"flow": true}`.
"""

import json
import os
import socket
import struct
import time
from collections.abc import Iterator, Mapping
from typing import Any

IN, OUT, ERR, CONTROL = range(4)
MAX_LINE_BYTES = 1 << 16  # bytes
MAX_FRAME_BYTES = 1 << 20
DEFAULT_TERMINAL_SIZE: Mapping[str, int] = {"columns": 80, "rows": 24}
"""For a terminal that reports 0, which means unknown (TIOCGWINSZ in ioctl_tty(2))."""
_HEAD = struct.Struct(">BI")


READY_LINE = b"fermi: ready\n"
"""The first line of a program whose standard input and output are the connection. It writes no more until it has
received something; output before this line is not its own (a shell's greeting)."""


class ProtocolError(Exception):
    """Received data does not follow the protocol."""


class EnvdRefusedError(Exception):
    """A refused request. `said`: the answer."""

    def __init__(self, code: str, **params: Any) -> None:
        super().__init__(code)
        self.said = {"ok": False, "code": code, "params": params}


def encode_line(message: Mapping[str, Any]) -> bytes:
    """Return a message as a line of JSON."""
    return json.dumps(message).encode() + b"\n"


def build_greeting(token: str) -> bytes:
    """Return the line with the token."""
    return encode_line({"token": token})


def parse_line(data: bytes) -> dict[str, Any]:
    """Return the message of a line. Raises ProtocolError, also if it is longer than MAX_LINE_BYTES."""
    if len(data) > MAX_LINE_BYTES:
        raise ProtocolError("too long")
    try:
        said = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise ProtocolError("not JSON") from error
    if not isinstance(said, dict):
        raise ProtocolError("not an object")
    return said


def send_request(stream: socket.socket, request: Mapping[str, Any], seconds: float = 10.0) -> dict[str, Any]:
    """Send the first line and return the answer, which has to arrive within `seconds`; no byte after it is read. Raises
    OSError and ProtocolError."""
    stream.settimeout(seconds)
    stream.sendall(encode_line(request))
    return _read_answer(stream, b"", seconds)


class PassedSocket(socket.socket):
    """A socket that the daemon passed; the connection to the daemon is kept open for as long, which tells it of the
    use."""

    def __init__(self, descriptor: int, keeper: socket.socket) -> None:
        super().__init__(fileno=descriptor)
        self._keeper = keeper

    def close(self) -> None:
        """Close both connections."""
        super().close()
        self._keeper.close()

    def dup(self) -> socket.socket:  # type: ignore[override]
        """Return a duplicate of the passed socket."""
        made = socket.socket(fileno=os.dup(self.fileno()))
        made.settimeout(self.gettimeout())
        return made


def request_with_fd(
    stream: socket.socket, request: Mapping[str, Any], seconds: float = 10.0
) -> tuple[socket.socket, dict[str, Any]]:
    """Send a request as `send_request` does, on the daemon's own Unix socket; return the socket that leads inside,
    passed or `stream` itself, and the answer."""
    stream.settimeout(seconds)
    stream.sendall(encode_line({**request, "hand": True}))
    first, handed, _, _ = socket.recv_fds(stream, 1, 1, socket.MSG_CMSG_CLOEXEC)
    try:
        inside = PassedSocket(handed[0], stream) if handed else stream
    except OSError:
        os.close(handed[0])  # no socket
        raise
    try:
        if not first:
            raise ProtocolError("no answer")
        return inside, _read_answer(stream, first, seconds)
    except BaseException:
        inside.close()
        raise


def _read_answer(stream: socket.socket, first: bytes, seconds: float) -> dict[str, Any]:
    answer, limit = bytearray(first), time.monotonic() + seconds
    while not answer.endswith(b"\n"):
        left = limit - time.monotonic()
        if left <= 0:
            raise TimeoutError("no whole answer")
        stream.settimeout(left)
        byte = stream.recv(1)
        if not byte or len(answer) > MAX_LINE_BYTES:
            raise ProtocolError("no answer")
        answer += byte
    stream.settimeout(seconds)
    return parse_line(bytes(answer))


def encode_frame(channel: int, payload: bytes) -> bytes:
    """Return a frame."""
    return _HEAD.pack(channel, len(payload)) + payload


def encode_control(message: Mapping[str, Any]) -> bytes:
    """Return a CONTROL frame."""
    return encode_frame(CONTROL, json.dumps(message).encode())


class FrameDecoder:
    """Decodes frames from a stream."""

    def __init__(self) -> None:
        self._rest = bytearray()

    def feed(self, data: bytes) -> Iterator[tuple[int, bytes]]:
        """Yield channel and payload of each frame that is complete. Raises ProtocolError."""
        self._rest += data
        while len(self._rest) >= _HEAD.size:
            channel, length = _HEAD.unpack_from(self._rest)
            if channel > CONTROL or length > MAX_FRAME_BYTES:
                raise ProtocolError("no such frame")
            end = _HEAD.size + length
            if len(self._rest) < end:
                return
            payload = bytes(self._rest[_HEAD.size : end])
            del self._rest[:end]
            yield channel, payload
