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
from apps.proxy.envd_streams import Stream

MOST = 128  # connections of one service
KEPT = 16  # of them while nothing is asked
IDLE_S = 10.0
LARGE = 1 << 20  # bytes of a body
PATIENCE_S = 30.0  # until one of MOST is free
_ASKED_AGAIN = ("GET", "HEAD", "OPTIONS")


class ClientGone(Exception):
    """The client disconnected while it was sending."""


class _Stream(httpcore.AsyncNetworkStream):
    def __init__(self, stream: Stream) -> None:
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

    def give_away(self) -> Stream:
        """Return the stream for another connection of httpcore, which knows nothing of the bytes that were read from
        this one."""
        self._given_away = True
        self._stream.give_back()
        return self._stream

    def get_extra_info(self, info: str) -> Any:
        return self._stream.is_over if info == "is_readable" else None


class _Dialling(httpcore.AsyncNetworkBackend):
    """Connects to a service through the environment's daemon. `spare`: open streams between two answers."""

    def __init__(self, environment: DevEnvironment, door: str) -> None:
        self._environment, self._door = environment, door
        self.spare: list[Stream] = []
        """Open, and between two answers."""

    async def connect_tcp(self, *about: Any, **more: Any) -> httpcore.AsyncNetworkStream:
        while self.spare:
            if not (kept := self.spare.pop()).is_over:
                return _Stream(kept)
            kept.close()
        sock, _ = await envd_streams.socket_to(self._environment, {"open": "port", "door": self._door})
        return _Stream(await Stream.over(sock))


@dataclass
class _Held:
    pool: httpcore.AsyncConnectionPool
    dialling: _Dialling
    using: int = 0
    closing: asyncio.TimerHandle | None = None


@dataclass
class Pools:
    """Connection pools by environment, run and service: a new run is reached by new connections."""

    _held: dict[tuple[str, int, str], _Held] = field(default_factory=dict)
    _closing: set[asyncio.Task[None]] = field(default_factory=set)

    def take(self, environment: DevEnvironment, run: int, door: str) -> "_Held":
        """Return the pool's entry, which is not closed while it is in use."""
        key = (environment.pk, run, door)
        held = self._held.get(key)
        if held is None:
            dialling = _Dialling(environment, door)
            pool = httpcore.AsyncConnectionPool(
                max_connections=MOST, max_keepalive_connections=KEPT, keepalive_expiry=IDLE_S,
                network_backend=dialling,
            )  # fmt: skip
            held = self._held[key] = _Held(pool, dialling)
        if held.closing:
            held.closing.cancel()
            held.closing = None
        held.using += 1
        return held

    def give_back(self, held: _Held) -> None:
        """End one use of the entry; an unused pool is closed after MAX_IDLE_SECONDS."""
        held.using -= 1
        if not held.using:
            held.closing = asyncio.get_running_loop().call_later(IDLE_S, self._close, held)

    def _close(self, held: _Held) -> None:
        self._held = {key: one for key, one in self._held.items() if one is not held}
        for stream in held.dialling.spare:
            stream.close()
        closing = asyncio.ensure_future(held.pool.aclose())
        self._closing.add(closing)
        closing.add_done_callback(self._closing.discard)


async def carry(
    scope: Scope, receive: Receive, send: Send, held: _Held, passed: headers.Headers, *,
    hidden: frozenset[bytes], more: Iterable[tuple[bytes, bytes]],
) -> None:  # fmt: skip
    """Pass on one request and its answer while they come. Raises errors of httpcore and of connecting before the
    answer's first byte; afterwards the connection is cut."""
    asking = _Asking(scope, receive)
    url = httpcore.URL(scheme=b"http", host=b"door", port=80, target=target(scope))
    leaving = asyncio.ensure_future(asking.left())
    answering = asyncio.ensure_future(_answer(scope, send, held, url, passed, asking, hidden, more))
    try:
        await asyncio.wait((answering, leaving), return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in (answering, leaving):
            task.cancel()
        results = await asyncio.gather(answering, leaving, return_exceptions=True)
    if isinstance(results[0], Exception):
        raise results[0]


async def _answer(
    scope: Scope, send: Send, held: _Held, url: httpcore.URL, passed: headers.Headers, asking: "_Asking",
    hidden: frozenset[bytes], more: Iterable[tuple[bytes, bytes]],
) -> None:  # fmt: skip
    def request() -> httpcore.Request:
        body = asking.body() if asking.has_body else None
        return httpcore.Request(
            scope["method"], url, headers=passed, content=body, extensions={"timeout": {"pool": PATIENCE_S}}
        )

    try:
        response = await held.pool.handle_async_request(request())
    except httpcore.RemoteProtocolError:
        # a kept connection may end just when it is used again
        if asking.has_body or scope["method"] not in _ASKED_AGAIN:
            raise
        response = await held.pool.handle_async_request(request())
    try:
        said = [*headers.outward(response.headers, hidden), *more]
        await send({"type": "http.response.start", "status": response.status, "headers": said})
        await _pass_on(scope, send, response, held.dialling.spare)
        await send({"type": "http.response.body", "body": b""})
    finally:
        await response.aclose()


async def _pass_on(scope: Scope, send: Send, response: httpcore.Response, spare: list[Stream]) -> None:
    """Send the body. Of a large one only what came with the headers goes through httpcore; the rest goes from socket to
    socket. httpcore, which has seen half of an answer, does not use the connection again; another of its connections
    may."""
    assert isinstance(response.stream, AsyncIterable)
    pour, left = (scope.get("extensions") or {}).get(asgi.POUR), _length(scope, response)
    async for piece in response.stream:
        await send({"type": "http.response.body", "body": piece, "more_body": True})
        left -= len(piece)
        if pour and left >= LARGE:
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
        if headers.one(response.headers, b"connection").lower() != "close" and len(spare) < KEPT:
            spare.append(stream.give_away())
    except asgi.ReaderGone as error:
        raise ClientGone from error
    finally:
        source.close()


def _length(scope: Scope, response: httpcore.Response) -> int:
    """Return the length of the body; 0 if it is unknown, or there is none."""
    if scope["method"] == "HEAD" or headers.one(response.headers, b"transfer-encoding"):
        return 0
    given = headers.one(response.headers, b"content-length")
    return int(given) if given.isdigit() else 0


def target(scope: Scope) -> bytes:
    """Return path and query as requested, byte for byte."""
    raw: bytes = scope["raw_path"]
    query: bytes = scope["query_string"]
    return raw + b"?" + query if query else raw


class _Asking:
    """What the client still sends: a body, and its disconnection."""

    def __init__(self, scope: Scope, receive: Receive) -> None:
        self._receive = receive
        length = headers.one(scope["headers"], b"content-length")
        framed = headers.one(scope["headers"], b"transfer-encoding")
        self.has_body = bool(framed) or length not in ("", "0")
        self._read = asyncio.Event()
        if not self.has_body:
            self._read.set()

    async def body(self) -> AsyncIterator[bytes]:
        try:
            while True:
                message = await self._receive()
                if message["type"] == "http.disconnect":
                    raise ClientGone
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
