"""HTTP/1.1 protocol of the web process: uvicorn's, with large bodies spliced between sockets and timeouts for
unfinished requests."""

import asyncio
import contextlib
import socket
from concurrent.futures import ThreadPoolExecutor
from typing import cast

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from apps.common.asgi import SEND_FROM_SOCKET, SLOW_BODY_ALLOWED, ClientDisconnectedError
from fermi.envd.socket_splice import TargetClosedError, splice_sockets, splice_sockets_blocking

MAX_SPLICE_THREADS = 8  # bodies with a thread of their own; more of them take turns in the event loop

REQUEST_TIMEOUT_SECONDS = 30.0
"""Seconds within which the head of a request must be complete, and then its body; on a new connection, the first
request."""
BYTES_PER_EXTRA_SECOND = 16 << 10
"""Bytes of a body that extend the timeout by one second. Bytes that arrive after the answer has begun do not."""
_TIMED_OUT = b"HTTP/1.1 408 Request Timeout\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"


class _ByteCount:
    """Stands for bytes that are sent without h11, by their number (https://h11.readthedocs.io, "sendfile()")."""

    def __init__(self, count: int) -> None:
        self._count = count

    def __len__(self) -> int:
        return self._count


class HttpProtocol(H11Protocol):
    """uvicorn's h11 protocol that sends large bodies past its buffers."""

    _threads = ThreadPoolExecutor(MAX_SPLICE_THREADS, "pour")
    _busy = 0
    _requests = 0  # that have come on this connection
    _awaited: tuple[str, int] | None = None  # what the client has to send, when that was looked at last
    _since = 0.0  # when it was seen first
    _came = 0  # bytes since then

    def data_received(self, data: bytes) -> None:
        self._came += len(data)
        super().data_received(data)

    def end_half_open(self, now: float) -> None:
        """Close the connection where the client has not finished a request, or sent none yet, within the timeout.
        `now`: the event loop's clock; to be called every few seconds."""
        awaited = self._await()
        if awaited is None or awaited != self._awaited:
            self._awaited, self._since, self._came = awaited, now, 0
            return
        is_answered = self.cycle is not None and self.cycle.response_started
        is_body = awaited[0] == "body"
        bonus = self._came / BYTES_PER_EXTRA_SECOND if is_body and not is_answered else 0.0
        if now > self._since + REQUEST_TIMEOUT_SECONDS + bonus:
            if not (is_body and is_answered):
                self.transport.write(_TIMED_OUT)
            self.transport.close()

    def _await(self) -> tuple[str, int] | None:
        """Return which part of which request the client still has to send; None where it is the platform's turn."""
        if self.flow.read_paused:
            return None
        if self.conn.their_state is h11.SEND_BODY:
            unhurried = cast(dict[str, object], self.scope).get("extensions", {})
            return None if SLOW_BODY_ALLOWED in cast(dict[str, object], unhurried) else ("body", self._requests)
        if self.conn.their_state is h11.IDLE and (self.conn.trailing_data[0] or not self._requests):
            return "head", self._requests
        return None

    def handle_events(self) -> None:
        before = self.scope
        super().handle_events()
        if self.scope is not before:
            self._requests += 1
            if self.scheme == "http":  # TLS has the transport encrypt
                cast(dict[str, object], self.scope)["extensions"] = {SEND_FROM_SOCKET: self._pour}

    async def _pour(self, source: socket.socket, count: int) -> None:
        self.conn.send_with_data_passthrough(h11.Data(data=cast(bytes, _ByteCount(count))))
        self.transport.set_write_buffer_limits(0)
        try:
            await self.flow.drain()
        finally:
            self.transport.set_write_buffer_limits()
        with self.transport.get_extra_info("socket").dup() as target:
            try:
                sent = await self._poured(source, target, count)
            except TargetClosedError as error:
                raise ClientDisconnectedError(error.errno, error.strerror) from error
        if sent < count:
            raise EOFError("the body ended early")

    @classmethod
    async def _poured(cls, source: socket.socket, target: socket.socket, count: int) -> int:
        """Copy `count` bytes between the sockets and return how many were sent. A thread does it at a fraction of the
        event loop's cost where pieces are small and one side waits; beyond MAX_SPLICE_THREADS copies the event loop
        does it."""
        if cls._busy >= MAX_SPLICE_THREADS:
            return await splice_sockets(source, target, count=count)
        cls._busy += 1
        pouring = asyncio.get_running_loop().run_in_executor(
            cls._threads, splice_sockets_blocking, source, target, count
        )
        try:
            return await asyncio.shield(pouring)
        except asyncio.CancelledError:
            for side in (source, target):  # neither is closed while the thread knows its number
                with contextlib.suppress(OSError):
                    side.shutdown(socket.SHUT_RDWR)
            await asyncio.wait([pouring])
            pouring.exception()  # it was made to fail
            raise
        finally:
            cls._busy -= 1
