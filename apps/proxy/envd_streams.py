"""Streams to environment daemons: connected in a thread, then used by the event loop."""

import asyncio
import socket
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from django.db import close_old_connections

from apps.clusters.models import DevEnvironment
from apps.environments import connection
from fermi.envd import protocol
from fermi.jobs.errors import BackendError

MAX_DIAL_THREADS = 16
MAX_BUFFERED_BYTES = 1 << 20  # bytes that are buffered for the reader; the sender waits then
_dial_threads = ThreadPoolExecutor(MAX_DIAL_THREADS, "dial")


class EnvdRefusedError(Exception):
    """A daemon refused the request."""

    def __init__(self, code: str, params: Mapping[str, Any]) -> None:
        super().__init__(code)
        self.code = code
        self.params = params


class EnvdStream(asyncio.Protocol):
    """A stream of bytes, without copies, for one reader; `write` waits while the other side is slow."""

    def __init__(self) -> None:
        self._pieces: deque[bytes] = deque()
        self._held = 0
        self._ended = False
        self._lost: Exception | None = None
        self._reader: asyncio.Future[None] | None = None
        self._writer: asyncio.Future[None] | None = None
        self._paused = self._full = False
        self._transport: asyncio.Transport

    @classmethod
    async def from_socket(cls, sock: socket.socket) -> "EnvdStream":
        """Return a stream over a connected socket."""
        sock.setblocking(False)
        loop = asyncio.get_running_loop()
        return (await loop.create_connection(cls, sock=sock))[1]

    # What its reader and its writer call ------------------------------------------------------------------------------

    async def read(self) -> bytes:
        """Return the next piece; empty at the end. Raises OSError when the connection broke."""
        if not self._pieces:
            if self._lost:
                raise self._lost
            if self._ended:
                return b""
            self._reader = asyncio.get_running_loop().create_future()
            try:
                await self._reader
            finally:
                self._reader = None
            return await self.read()
        piece = self._pieces.popleft()
        self._held -= len(piece)
        if self._full and self._held < MAX_BUFFERED_BYTES // 2:
            self._full = False
            self._transport.resume_reading()
        return piece

    def take_over(self) -> tuple[list[bytes], socket.socket]:
        """Return what was received, and a duplicate of the socket for the rest, which the caller closes; the stream
        does not read any more. Raises OSError when the connection broke."""
        if self._lost:
            raise self._lost
        self._transport.pause_reading()
        pieces = list(self._pieces)
        self._pieces.clear()
        self._held, self._full = 0, False
        return pieces, self._transport.get_extra_info("socket").dup()

    def resume_reading(self) -> None:
        """Read from the socket again."""
        self._transport.resume_reading()

    async def write(self, data: bytes) -> None:
        """Send data. Raises OSError when the connection broke."""
        if self._lost or self._transport.is_closing():
            raise self._lost or ConnectionResetError("closed")
        self._transport.write(data)
        if self._paused:
            self._writer = self._writer or asyncio.get_running_loop().create_future()
            await asyncio.shield(self._writer)

    def end_writing(self) -> None:
        if not self._transport.is_closing() and self._transport.can_write_eof():
            self._transport.write_eof()

    @property
    def is_over(self) -> bool:
        """True for an unused stream if it has ended or data is waiting."""
        return self._ended or bool(self._pieces)

    def close(self) -> None:
        self._transport.abort()

    # What the event loop calls ----------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._pieces.append(data)
        self._held += len(data)
        if not self._full and self._held > MAX_BUFFERED_BYTES:
            self._full = True
            self._transport.pause_reading()
        self._wake()

    def eof_received(self) -> bool:
        self._ended = True
        self._wake()
        return True  # the other direction stays open

    def connection_lost(self, error: Exception | None) -> None:
        self._lost = self._lost or error
        self._ended = True
        self._wake()
        self.resume_writing()

    def pause_writing(self) -> None:
        self._paused = True

    def resume_writing(self) -> None:
        self._paused = False
        if self._writer and not self._writer.done():
            if self._lost:
                self._writer.set_exception(self._lost)
                self._writer.exception()
            else:
                self._writer.set_result(None)
        self._writer = None

    def _wake(self) -> None:
        if self._reader and not self._reader.done():
            self._reader.set_result(None)


async def open_envd_socket(
    environment: DevEnvironment, request: Mapping[str, Any]
) -> tuple[socket.socket, dict[str, Any]]:
    """Return a socket on which the daemon has accepted the request, and its answer. Raises BackendError,
    EnvdRefusedError, OSError and protocol.WireError."""
    return await dial_in_thread(lambda: _dial_environment(environment, request))


async def dial_in_thread(
    dial: Callable[[], tuple[socket.socket, dict[str, Any]]],
) -> tuple[socket.socket, dict[str, Any]]:
    """Run `dial` in a thread; if the caller is cancelled meanwhile, close the socket."""
    dialling = asyncio.get_running_loop().run_in_executor(_dial_threads, dial)
    try:
        return await asyncio.shield(dialling)
    except asyncio.CancelledError:
        dialling.add_done_callback(_close_unused)
        raise


def _dial_environment(environment: DevEnvironment, request: Mapping[str, Any]) -> tuple[socket.socket, dict[str, Any]]:
    def can_hand_over() -> bool:
        return request["open"] == "port" and connection.can_pass_socket(environment)

    return dial_and_request(lambda: connection.dial_envd(environment), request, can_hand_over)


def dial_and_request(
    dial: Callable[[], socket.socket], request: Mapping[str, Any], can_hand_over: Callable[[], bool] = lambda: False
) -> tuple[socket.socket, dict[str, Any]]:
    """Connect and send the request, in a thread that may have used the database before."""
    close_old_connections()
    try:
        hand = can_hand_over()
        sock = dial()
    finally:
        close_old_connections()
    return send_request(sock, request, hand=hand)


def send_request(
    sock: socket.socket, request: Mapping[str, Any], *, hand: bool = False
) -> tuple[socket.socket, dict[str, Any]]:
    """Send the request and return the socket that leads inside, and the daemon's answer. `hand`: the daemon may pass a
    socket of its own. Raises EnvdRefusedError, OSError and protocol.WireError."""
    try:
        inside, answer = (
            protocol.request_with_fd(sock, request) if hand else (sock, protocol.send_request(sock, request))
        )
        if not answer.get("ok"):
            params = answer.get("params")
            raise EnvdRefusedError(str(answer.get("code", "")), params if isinstance(params, dict) else {})
        inside.settimeout(None)
    except BaseException:
        sock.close()
        raise
    return inside, answer


def _close_unused(dialled: "asyncio.Future[tuple[socket.socket, dict[str, Any]]]") -> None:
    """Close the socket of a connection that is no longer needed."""
    if not dialled.cancelled() and not dialled.exception():
        dialled.result()[0].close()


DIAL_ERRORS = (BackendError, EnvdRefusedError, OSError, protocol.ProtocolError)
"""Errors of connecting."""
