"""HTTP client of the proxy: httpcore over streams from environment daemons.

There is one connection pool for each service of a run, closed when it was not used for a while: a daemon counts
connections, and an environment that has one is in use.
"""

import asyncio
import socket
from collections.abc import AsyncIterable, AsyncIterator, Iterable
from dataclasses import dataclass, field
from typing import Any

import httpcore

from apps.clusters.models import DevEnvironment
from apps.common import asgi
from apps.common.asgi import Receive, Scope, Send
from apps.proxy import envd_streams, headers
from apps.proxy.envd_streams import EnvdStream

MAX_CONNECTIONS = 128  # connections of one service
MAX_IDLE_CONNECTIONS = 16  # of them while nothing is asked
MAX_IDLE_SECONDS = 10.0
MIN_SPLICE_BYTES = 1 << 20  # bytes of a body
POOL_TIMEOUT_SECONDS = 30.0  # until one of MOST is free
_RETRIED_METHODS = ("GET", "HEAD", "OPTIONS")


class ProxyClientDisconnectedError(Exception):
    """The client disconnected while it was sending."""


class _EnvdNetworkStream(httpcore.AsyncNetworkStream):
    def __init__(self, stream: EnvdStream) -> None:
        self._stream = stream
        self._given_away = False

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        try:
            return await self._stream.read()
        except OSError as error:
            raise httpcore.ReadError(str(error)) from error

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        try:
            if buffer:
                await self._stream.write(buffer)
        except OSError as error:
            raise httpcore.WriteError(str(error)) from error

    async def aclose(self) -> None:
        if not self._given_away:
            self._stream.close()

    def take_over(self) -> tuple[list[bytes], socket.socket]:
        return self._stream.take_over()

    def detach_stream(self) -> EnvdStream:
        """Return the stream for another connection of httpcore, which knows nothing of the bytes that were read from
        this one."""
        self._given_away = True
        self._stream.resume_reading()
        return self._stream

    def get_extra_info(self, info: str) -> Any:
        return self._stream.is_over if info == "is_readable" else None


class _EnvdBackend(httpcore.AsyncNetworkBackend):
    """Connects to a service through the environment's daemon. `spare`: open streams between two answers."""

    def __init__(self, environment: DevEnvironment, door: str) -> None:
        self._environment, self._door = environment, door
        self.spare: list[EnvdStream] = []
        """Open, and between two answers."""

    async def connect_tcp(self, *about: Any, **more: Any) -> httpcore.AsyncNetworkStream:
        while self.spare:
            if not (kept := self.spare.pop()).is_over:
                return _EnvdNetworkStream(kept)
            kept.close()
        sock, _ = await envd_streams.open_envd_socket(self._environment, {"open": "port", "door": self._door})
        return _EnvdNetworkStream(await EnvdStream.from_socket(sock))


@dataclass
class _PoolEntry:
    pool: httpcore.AsyncConnectionPool
    dialling: _EnvdBackend
    using: int = 0
    closing: asyncio.TimerHandle | None = None


@dataclass
class ConnectionPools:
    """Connection pools by environment, run and service: a new run is reached by new connections."""

    _held: dict[tuple[str, int, str], _PoolEntry] = field(default_factory=dict)
    _closing: set[asyncio.Task[None]] = field(default_factory=set)

    def acquire(self, environment: DevEnvironment, run: int, door: str) -> "_PoolEntry":
        """Return the pool's entry, which is not closed while it is in use."""
        key = (environment.pk, run, door)
        held = self._held.get(key)
        if held is None:
            dialling = _EnvdBackend(environment, door)
            pool = httpcore.AsyncConnectionPool(
                max_connections=MAX_CONNECTIONS, max_keepalive_connections=MAX_IDLE_CONNECTIONS,
                keepalive_expiry=MAX_IDLE_SECONDS, network_backend=dialling,
            )  # fmt: skip
            held = self._held[key] = _PoolEntry(pool, dialling)
        if held.closing:
            held.closing.cancel()
            held.closing = None
        held.using += 1
        return held

    def release(self, entry: _PoolEntry) -> None:
        """End one use of the entry; an unused pool is closed after MAX_IDLE_SECONDS."""
        entry.using -= 1
        if not entry.using:
            entry.closing = asyncio.get_running_loop().call_later(MAX_IDLE_SECONDS, self._close, entry)

    def _close(self, entry: _PoolEntry) -> None:
        self._held = {key: one for key, one in self._held.items() if one is not entry}
        for stream in entry.dialling.spare:
            stream.close()
        closing = asyncio.ensure_future(entry.pool.aclose())
        self._closing.add(closing)
        closing.add_done_callback(self._closing.discard)


async def proxy_request(
    scope: Scope, receive: Receive, send: Send, entry: _PoolEntry, request_headers: headers.Headers, *,
    hidden_cookies: frozenset[bytes], extra_headers: Iterable[tuple[bytes, bytes]],
) -> None:  # fmt: skip
    """Pass on one request and its answer while they come. Raises errors of httpcore and of connecting before the
    answer's first byte; afterwards the connection is cut."""
    asking = _ProxyRequest(scope, receive)
    url = httpcore.URL(scheme=b"http", host=b"door", port=80, target=get_raw_target(scope))
    leaving = asyncio.ensure_future(asking.left())
    answering = asyncio.ensure_future(
        _send_answer(scope, send, entry, url, request_headers, asking, hidden_cookies, extra_headers)
    )
    try:
        await asyncio.wait((answering, leaving), return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in (answering, leaving):
            task.cancel()
        results = await asyncio.gather(answering, leaving, return_exceptions=True)
    if isinstance(results[0], Exception):
        raise results[0]


async def _send_answer(
    scope: Scope, send: Send, entry: _PoolEntry, url: httpcore.URL, request_headers: headers.Headers, asking:
    "_ProxyRequest", hidden_cookies: frozenset[bytes], extra_headers: Iterable[tuple[bytes, bytes]],
) -> None:  # fmt: skip
    def request() -> httpcore.Request:
        body = asking.body() if asking.has_body else None
        return httpcore.Request(
            scope["method"],
            url,
            headers=request_headers,
            content=body,
            extensions={"timeout": {"pool": POOL_TIMEOUT_SECONDS}},
        )

    try:
        response = await entry.pool.handle_async_request(request())
    except httpcore.RemoteProtocolError:
        # a kept connection may end just when it is used again
        if asking.has_body or scope["method"] not in _RETRIED_METHODS:
            raise
        response = await entry.pool.handle_async_request(request())
    try:
        said = [*headers.filter_response_headers(response.headers, hidden_cookies), *extra_headers]
        await send({"type": "http.response.start", "status": response.status, "headers": said})
        await _send_body(scope, send, response, entry.dialling.spare)
        await send({"type": "http.response.body", "body": b""})
    finally:
        await response.aclose()


async def _send_body(scope: Scope, send: Send, response: httpcore.Response, spare: list[EnvdStream]) -> None:
    """Send the body. Of a large one only what came with the headers goes through httpcore; the rest goes from socket to
    socket. httpcore, which has seen half of an answer, does not use the connection again; another of its connections
    may."""
    assert isinstance(response.stream, AsyncIterable)
    pour, left = (scope.get("extensions") or {}).get(asgi.SEND_FROM_SOCKET), _read_length(scope, response)
    async for piece in response.stream:
        await send({"type": "http.response.body", "body": piece, "more_body": True})
        left -= len(piece)
        if pour and left >= MIN_SPLICE_BYTES:
            break
    else:
        return
    stream = response.extensions["network_stream"]
    pieces, source = stream.take_over()
    try:
        for piece in pieces:
            await send({"type": "http.response.body", "body": piece[:left], "more_body": True})
            left -= len(piece[:left])
        await pour(source, left)
        if headers.get_header(response.headers, b"connection").lower() != "close" and len(spare) < MAX_IDLE_CONNECTIONS:
            spare.append(stream.detach_stream())
    except asgi.ClientDisconnectedError as error:
        raise ProxyClientDisconnectedError from error
    finally:
        source.close()


def _read_length(scope: Scope, response: httpcore.Response) -> int:
    """Return the length of the body; 0 if it is unknown, or there is none."""
    if scope["method"] == "HEAD" or headers.get_header(response.headers, b"transfer-encoding"):
        return 0
    given = headers.get_header(response.headers, b"content-length")
    return int(given) if given.isdigit() else 0


def get_raw_target(scope: Scope) -> bytes:
    """Return path and query as requested, byte for byte."""
    raw: bytes = scope["raw_path"]
    query: bytes = scope["query_string"]
    return raw + b"?" + query if query else raw


class _ProxyRequest:
    """What the client still sends: a body, and its disconnection."""

    def __init__(self, scope: Scope, receive: Receive) -> None:
        self._receive = receive
        length = headers.get_header(scope["headers"], b"content-length")
        framed = headers.get_header(scope["headers"], b"transfer-encoding")
        self.has_body = bool(framed) or length not in ("", "0")
        self._read = asyncio.Event()
        if not self.has_body:
            self._read.set()

    async def body(self) -> AsyncIterator[bytes]:
        try:
            while True:
                message = await self._receive()
                if message["type"] == "http.disconnect":
                    raise ProxyClientDisconnectedError
                if message.get("body"):
                    yield message["body"]
                if not message.get("more_body"):
                    return
        finally:
            self._read.set()

    async def left(self) -> None:
        """Return when the client has disconnected; reads only after the request's body was read, or if there is
        none."""
        await self._read.wait()
        while (await self._receive())["type"] != "http.disconnect":
            pass
