"""Requests that are answered without h11, and what is left to it; over real connections."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from uvicorn import Config
from uvicorn.server import ServerState

from server.http import Http
from server.short import Way

PLAIN = b"POST /short HTTP/1.1\r\nHost: here\r\nContent-Length: 2\r\nAccept-Language: zh\r\n\r\nhi"


async def app(scope: Any, receive: Any, send: Any) -> None:
    """What h11 and ASGI make of a request."""
    body, more = b"", True
    while more:
        message = await receive()
        body, more = body + message.get("body", b""), message.get("more_body", False)
    answer = b"asgi " + scope["path"].encode() + b" " + body
    about = [(b"content-length", b"%d" % len(answer))]
    await send({"type": "http.response.start", "status": 200, "headers": about})
    await send({"type": "http.response.body", "body": answer})


def echo(body: bytes, language: str) -> bytes:
    return b"short " + language.encode() + b" " + body


class Connection:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, state: ServerState) -> None:
        self.reader, self.writer, self.state = reader, writer, state

    async def say(self, *pieces: bytes) -> None:
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

    async def ask(self, *pieces: bytes) -> bytes:
        await self.say(*pieces)
        return (await self.answer())[1]

    async def ended(self) -> bool:
        async with asyncio.timeout(60):
            return await self.reader.read() == b""


@asynccontextmanager
async def connected(
    monkeypatch: pytest.MonkeyPatch,
    answer: Callable[[bytes, str], bytes | Awaitable[bytes | None] | None] = echo,
) -> AsyncIterator[Connection]:
    monkeypatch.setattr(Http, "way", Way("/short", lambda host: host != "elsewhere", answer))
    config, state = Config(app, log_config=None, proxy_headers=False, lifespan="off"), ServerState()
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Http(config=config, server_state=state, app_state={}), "127.0.0.1", 0)
    reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname()[:2])
    try:
        yield Connection(reader, writer, state)
    finally:
        writer.close()
        server.close()
        await server.wait_closed()


def test_a_plain_request_takes_the_short_way_and_the_next_one_whichever_is_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def main() -> None:
        async with connected(monkeypatch) as there:
            assert await there.ask(PLAIN) == b"short zh hi"
            assert await there.ask(b"GET /other HTTP/1.1\r\nHost: here\r\n\r\n") == b"asgi /other "
            assert await there.ask(PLAIN) == b"short zh hi"
            assert there.state.total_requests == 3

    asyncio.run(main())


@pytest.mark.parametrize("cut", range(1, len(PLAIN), 7))
def test_a_request_may_come_in_pieces(monkeypatch: pytest.MonkeyPatch, cut: int) -> None:
    async def main() -> bytes:
        async with connected(monkeypatch) as there:
            return await there.ask(PLAIN[:cut], PLAIN[cut:])

    began = cut >= PLAIN.index(b"\r\n") + 2  # h11 keeps what did not begin as one of ours
    assert asyncio.run(main()) in ([b"short zh hi"] if began else [b"asgi /short hi", b"short zh hi"])


@pytest.mark.parametrize(
    "request_",
    [
        b"POST /short HTTP/1.1\r\nHost: here\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n",
        b"POST /short HTTP/1.1\r\nHost: here\r\nContent-Length: 2\r\nConnection: close\r\n\r\nhi",
        b"POST /short HTTP/1.1\r\nHost: elsewhere\r\nContent-Length: 2\r\n\r\nhi",
        b"POST /short HTTP/1.1\r\nHost: here\r\nContent-Length: 2\r\nContent-Length: 2\r\n\r\nhi",
        b"POST /short HTTP/1.1\r\nHost: here\r\nContent-Length: 2\r\nX-Long: %s\r\n\r\nhi" % (b"x" * 5000),
        b"POST /short?now HTTP/1.1\r\nHost: here\r\nContent-Length: 2\r\n\r\nhi",
        b"POST /short HTTP/1.0\r\nHost: here\r\nContent-Length: 2\r\n\r\nhi",
    ],
)
def test_what_is_not_of_the_plainest_form_is_h11s(monkeypatch: pytest.MonkeyPatch, request_: bytes) -> None:
    async def main() -> bytes:
        async with connected(monkeypatch) as there:
            return await there.ask(request_)

    assert asyncio.run(main()) == b"asgi /short hi"


@pytest.mark.parametrize(
    "request_",
    [
        b"POST /short HTTP/1.1\r\nHost: here\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nhi",
        b"POST /short HTTP/1.1\r\nHost: a\r\nHost: b\r\nContent-Length: 2\r\n\r\nhi",
        b"POST /short HTTP/1.1\r\nContent-Length: 2\r\n\r\nhi",
        b"POST /short HTTP/1.1\r\nHost: here\r\nContent-Length : 2\r\n\r\nhi",
        b"POST /short HTTP/1.1\r\nHost: here\r\nContent-Length: +2\r\n\r\nhi",
        b"POST /short HTTP/1.1\r\nHost: here\r\nX: a\0b\r\nContent-Length: 2\r\n\r\nhi",
    ],
)
def test_what_h11_refuses_is_refused(monkeypatch: pytest.MonkeyPatch, request_: bytes) -> None:
    async def main() -> bytes:
        async with connected(monkeypatch) as there:
            await there.say(request_)
            async with asyncio.timeout(60):
                return await there.reader.readline()

    assert asyncio.run(main()).startswith(b"HTTP/1.1 400")


@pytest.mark.parametrize("later", [False, True])
def test_whoever_does_not_answer_leaves_it_to_asgi(monkeypatch: pytest.MonkeyPatch, later: bool) -> None:
    async def nothing() -> None:
        await asyncio.sleep(0)

    async def main() -> tuple[bytes, bytes]:
        async with connected(monkeypatch, lambda body, language: nothing() if later else None) as there:
            return await there.ask(PLAIN), await there.ask(PLAIN)

    assert asyncio.run(main()) == (b"asgi /short hi", b"asgi /short hi")


def test_requests_that_come_at_once_are_answered_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> list[bytes]:
        async def after(body: bytes, language: str) -> bytes:
            await asyncio.sleep(0)
            return echo(body, language)

        kinds: Iterator[Callable[[bytes, str], Any]] = iter([after, echo, after])

        def answer(body: bytes, language: str) -> bytes | Awaitable[bytes]:
            found: bytes | Awaitable[bytes] = next(kinds)(body, language)
            return found

        async with connected(monkeypatch, answer) as there:
            parts = [PLAIN[:-2] + word for word in (b"ab", b"cd", b"ef")]
            await there.say(b"".join([*parts, b"GET /other HTTP/1.1\r\nHost: here\r\n\r\n"]))
            return [(await there.answer())[1] for _ in range(4)]

    assert asyncio.run(main()) == [b"short zh ab", b"short zh cd", b"short zh ef", b"asgi /other "]


def test_who_leaves_is_waited_for_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        begun, cancelled = asyncio.Event(), asyncio.Event()

        async def never(body: bytes, language: str) -> bytes:
            begun.set()
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                cancelled.set()
                raise
            return b""

        async with connected(monkeypatch, never) as there, asyncio.timeout(60):
            await there.say(PLAIN)
            await begun.wait()
            assert len(there.state.tasks) == 1
            there.writer.close()
            await cancelled.wait()

    asyncio.run(main())


def test_a_server_that_ends_gives_the_answer_that_somebody_waits_for(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        begun, may = asyncio.Event(), asyncio.Event()

        async def held(body: bytes, language: str) -> bytes:
            begun.set()
            await may.wait()
            return echo(body, language)

        async with connected(monkeypatch, held) as there, asyncio.timeout(60):
            await there.say(PLAIN)
            await begun.wait()
            for connection in list(there.state.connections):
                connection.shutdown()
            may.set()
            head, body = await there.answer()
            assert (b"connection: close" in head, body) == (True, b"short zh hi")
            assert await there.ended()

    asyncio.run(main())


def test_a_bug_cuts_the_connection_and_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        async def broken(body: bytes, language: str) -> bytes:
            raise RuntimeError("broken on purpose")

        async with connected(monkeypatch, broken) as there:
            await there.say(PLAIN)
            assert await there.ended()

    asyncio.run(main())
