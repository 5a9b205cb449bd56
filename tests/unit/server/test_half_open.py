"""Requests that are begun and not finished end; over real connections, by a clock that the test sets."""

import asyncio
from typing import Any

import pytest

from apps.common.asgi import UNHURRIED
from server.http import PACE, PATIENCE, Http
from tests.unit.server import test_short
from tests.unit.server.test_short import Connection, connected

POST = b"POST /%s HTTP/1.1\r\nHost: here\r\nContent-Length: 1000000\r\n\r\n"
NOTHING = b""
HALF_A_HEAD = b"GET / HTTP/1.1\r\nHost: he"
HALF_A_SHORT_HEAD = b"POST /short HTTP/1.1\r\nHost: he"
HALF_A_SHORT_BODY = POST % b"short" + b"x"
HALF_A_BODY = POST % b"long" + b"x"
HALF_A_CHUNK = b"POST /long HTTP/1.1\r\nHost: here\r\nTransfer-Encoding: chunked\r\n\r\nff\r\nx"


def protocol(connection: Connection) -> Http:
    [found] = connection.state.connections
    assert isinstance(found, Http)
    return found


async def arrived(connection: Connection, part: str) -> Http:
    """The server's side, once it has read so much that the client owes it that part."""
    async with asyncio.timeout(60):
        while not connection.state.connections or (protocol(connection)._await() or ("",))[0] != part:
            await asyncio.sleep(0)
    return protocol(connection)


@pytest.mark.parametrize(
    ("said", "part"),
    [(NOTHING, "head"), (HALF_A_HEAD, "head"), (HALF_A_SHORT_HEAD, "short"), (HALF_A_SHORT_BODY, "short"),
     (HALF_A_BODY, "body"), (HALF_A_CHUNK, "body")],
)  # fmt: skip
@pytest.mark.parametrize("before", [False, True], ids=["first", "after another"])
def test_half_a_request_ends(monkeypatch: pytest.MonkeyPatch, said: bytes, part: str, before: bool) -> None:
    async def half() -> None:
        async with connected(monkeypatch) as connection:
            if before:
                assert await connection.ask(b"GET /one HTTP/1.1\r\nHost: here\r\n\r\n") == b"asgi /one "
            await connection.say(said)
            if before and not said:
                protocol(connection).end_half_open(10_000.0)
                protocol(connection).end_half_open(20_000.0)
                assert await connection.ask(test_short.PLAIN) == b"short zh hi"  # it is idle, not half open
                return
            http = await arrived(connection, part)
            http.end_half_open(1000.0)
            http.end_half_open(1000.0 + PATIENCE)
            assert not http.transport.is_closing()
            http.end_half_open(1000.0 + PATIENCE + 0.001)
            assert (await connection.reader.readline()).startswith(b"HTTP/1.1 408 ")
            await connection.reader.read()
            assert not connection.state.connections

    asyncio.run(half())


def test_a_body_that_goes_on_coming_has_time(monkeypatch: pytest.MonkeyPatch) -> None:
    async def slow() -> None:
        async with connected(monkeypatch) as connection:
            await connection.say(HALF_A_BODY)
            http = await arrived(connection, "body")
            http.end_half_open(1000.0)
            await connection.say(b"x" * PACE)
            async with asyncio.timeout(60):
                while http._came < PACE:
                    await asyncio.sleep(0)
            http.end_half_open(1000.0 + PATIENCE + 1)
            assert not http.transport.is_closing()
            http.end_half_open(1000.0 + PATIENCE + 1.001)
            assert http.transport.is_closing()

    asyncio.run(slow())


def test_requests_that_follow_each_other_are_not_one_that_takes_long(monkeypatch: pytest.MonkeyPatch) -> None:
    async def busy() -> None:
        async with connected(monkeypatch) as connection:
            for turn in range(4):
                head, body = test_short.PLAIN[:-1], test_short.PLAIN[-1:]
                await connection.say(head)
                http = await arrived(connection, "short")
                http.end_half_open(1000.0 + turn * PATIENCE)
                assert await connection.ask(body) == b"short zh hi"

    asyncio.run(busy())


def test_a_body_that_somebody_lets_take_its_time_does(monkeypatch: pytest.MonkeyPatch) -> None:
    async def door(scope: Any, receive: Any, send: Any) -> None:
        scope.setdefault("extensions", {})[UNHURRIED] = True
        await plain(scope, receive, send)

    plain = test_short.app
    monkeypatch.setattr(test_short, "app", door)

    async def slow() -> None:
        async with connected(monkeypatch) as connection:
            await connection.say(HALF_A_BODY)
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
