"""Requests that are begun and not finished end; over real connections, by a clock that the test sets."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from uvicorn import Config
from uvicorn.server import ServerState

from apps.common.asgi import SLOW_BODY_ALLOWED
from server.http import BYTES_PER_EXTRA_SECOND, REQUEST_TIMEOUT_SECONDS, HttpProtocol

POST = b"POST /%s HTTP/1.1\r\nHost: here\r\nContent-Length: 1000000\r\n\r\n"
ONE = b"GET /one HTTP/1.1\r\nHost: here\r\n\r\n"
NOTHING = b""
HALF_A_HEAD = b"GET / HTTP/1.1\r\nHost: he"
HALF_A_BODY = POST % b"long" + b"x"
HALF_A_CHUNK = b"POST /long HTTP/1.1\r\nHost: here\r\nTransfer-Encoding: chunked\r\n\r\nff\r\nx"


async def echo(scope: Any, receive: Any, send: Any) -> None:
    """Answers with the path and the body of a request."""
    body, more = b"", True
    while more:
        message = await receive()
        body, more = body + message.get("body", b""), message.get("more_body", False)
    answer = scope["path"].encode() + b" " + body
    about = [(b"content-length", b"%d" % len(answer))]
    await send({"type": "http.response.start", "status": 200, "headers": about})
    await send({"type": "http.response.body", "body": answer})


class Connection:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, state: ServerState) -> None:
        self.reader, self.writer, self.state = reader, writer, state

    async def send(self, *pieces: bytes) -> None:
        """Each of them arrives by itself."""
        for piece in pieces:
            self.writer.write(piece)
            await self.writer.drain()
            for _ in range(3):
                await asyncio.sleep(0)

    async def answer(self) -> tuple[bytes, bytes]:
        """Head and body."""
        async with asyncio.timeout(60):
            head = await self.reader.readuntil(b"\r\n\r\n")
            length = int(head.lower().partition(b"content-length:")[2].partition(b"\r")[0])
            return head, await self.reader.readexactly(length)

    async def request(self, *pieces: bytes) -> bytes:
        await self.send(*pieces)
        return (await self.answer())[1]

    async def ended(self) -> bool:
        async with asyncio.timeout(60):
            return await self.reader.read() == b""


@asynccontextmanager
async def connected(app: Callable[[Any, Any, Any], Awaitable[None]] = echo) -> AsyncIterator[Connection]:
    config, state = Config(app, log_config=None, proxy_headers=False, lifespan="off"), ServerState()
    loop = asyncio.get_running_loop()
    server = await loop.create_server(
        lambda: HttpProtocol(config=config, server_state=state, app_state={}), "127.0.0.1", 0
    )
    reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname()[:2])
    try:
        yield Connection(reader, writer, state)
    finally:
        writer.close()
        server.close()
        await server.wait_closed()


def protocol(connection: Connection) -> HttpProtocol:
    [found] = connection.state.connections
    assert isinstance(found, HttpProtocol)
    return found


async def arrived(connection: Connection, part: str) -> HttpProtocol:
    """The server's side, once it has read so much that the client owes it that part."""
    async with asyncio.timeout(60):
        while not connection.state.connections or (protocol(connection)._await() or ("",))[0] != part:
            await asyncio.sleep(0)
    return protocol(connection)


@pytest.mark.parametrize(
    ("said", "part"),
    [(NOTHING, "head"), (HALF_A_HEAD, "head"), (HALF_A_BODY, "body"), (HALF_A_CHUNK, "body")],
)
@pytest.mark.parametrize("before", [False, True], ids=["first", "after another"])
def test_an_incomplete_request_times_out(said: bytes, part: str, before: bool) -> None:
    async def half() -> None:
        async with connected() as connection:
            if before:
                assert await connection.request(ONE) == b"/one "
            await connection.send(said)
            if before and not said:
                protocol(connection).end_half_open(10_000.0)
                protocol(connection).end_half_open(20_000.0)
                assert await connection.request(ONE) == b"/one "  # it is idle, not half open
                return
            http = await arrived(connection, part)
            http.end_half_open(1000.0)
            http.end_half_open(1000.0 + REQUEST_TIMEOUT_SECONDS)
            assert not http.transport.is_closing()
            http.end_half_open(1000.0 + REQUEST_TIMEOUT_SECONDS + 0.001)
            assert (await connection.reader.readline()).startswith(b"HTTP/1.1 408 ")
            await connection.reader.read()
            assert not connection.state.connections

    asyncio.run(half())


def test_a_body_that_keeps_arriving_has_time() -> None:
    async def slow() -> None:
        async with connected() as connection:
            await connection.send(HALF_A_BODY)
            http = await arrived(connection, "body")
            http.end_half_open(1000.0)
            await connection.send(b"x" * BYTES_PER_EXTRA_SECOND)
            async with asyncio.timeout(60):
                while http._came < BYTES_PER_EXTRA_SECOND:
                    await asyncio.sleep(0)
            http.end_half_open(1000.0 + REQUEST_TIMEOUT_SECONDS + 1)
            assert not http.transport.is_closing()
            http.end_half_open(1000.0 + REQUEST_TIMEOUT_SECONDS + 1.001)
            assert http.transport.is_closing()

    asyncio.run(slow())


def test_consecutive_requests_are_timed_separately() -> None:
    async def busy() -> None:
        async with connected() as connection:
            for turn in range(4):
                await connection.send(ONE[:-1])
                http = await arrived(connection, "head")
                http.end_half_open(1000.0 + turn * REQUEST_TIMEOUT_SECONDS)
                assert await connection.request(ONE[-1:]) == b"/one "

    asyncio.run(busy())


def test_a_view_may_allow_a_slow_body() -> None:
    async def door(scope: Any, receive: Any, send: Any) -> None:
        scope.setdefault("extensions", {})[SLOW_BODY_ALLOWED] = True
        await echo(scope, receive, send)

    async def slow() -> None:
        async with connected(door) as connection:
            await connection.send(HALF_A_BODY)
            async with asyncio.timeout(60):
                while not connection.state.connections or not protocol(connection)._requests:
                    await asyncio.sleep(0)
            http = protocol(connection)
            async with asyncio.timeout(60):
                while http._await():
                    await asyncio.sleep(0)
            http.end_half_open(1000.0)
            http.end_half_open(9000.0)
            assert not http.transport.is_closing()

    asyncio.run(slow())
