"""The ASGI handler: one thread for a request, the event loop for a stream, and an end when the client leaves."""

import asyncio
import threading
from collections.abc import AsyncIterator
from typing import Any

import pytest
from django.core.signals import request_finished
from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.test import override_settings
from django.urls import path

from server.asgi import Handler

closed = threading.Event()


def plain(request: HttpRequest) -> HttpResponse:
    return HttpResponse(threading.current_thread().name + ":" + request.body.decode())


async def ticking(request: HttpRequest) -> StreamingHttpResponse:
    async def ticks() -> AsyncIterator[str]:
        try:
            while True:
                yield f"{threading.current_thread().name}\n"
                await asyncio.sleep(0)
        finally:
            closed.set()

    return StreamingHttpResponse(ticks())


def in_pieces(request: HttpRequest) -> StreamingHttpResponse:
    return StreamingHttpResponse(f"{number} {threading.current_thread().name}\n" for number in range(3))


def broken(request: HttpRequest) -> HttpResponse:
    raise RuntimeError("broken on purpose")


urlpatterns = [path("plain", plain), path("ticking", ticking), path("in-pieces", in_pieces), path("broken", broken)]


class Client:
    """One request, spoken as an ASGI server speaks it."""

    def __init__(self, url: str, body: bytes = b"") -> None:
        self.scope: dict[str, Any] = {
            "type": "http", "method": "POST", "path": url, "query_string": b"", "headers": [(b"host", b"localhost")],
        }  # fmt: skip
        self.incoming = [{"type": "http.request", "body": body}]
        self.left = asyncio.Event()
        self.answer: asyncio.Queue[Any] = asyncio.Queue()

    async def receive(self) -> dict[str, Any]:
        if self.incoming:
            return self.incoming.pop(0)
        await self.left.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Any) -> None:
        await self.answer.put(message)


@pytest.fixture(autouse=True)
def bare() -> Any:
    """Only the handler: middleware and the project's addresses have tests of their own."""
    with override_settings(ROOT_URLCONF=__name__, MIDDLEWARE=[], ALLOWED_HOSTS=["localhost"]):
        yield


def test_a_request_runs_in_a_lasting_thread_and_is_over_when_it_is_answered() -> None:
    finished = []
    request_finished.connect(lambda **_: finished.append(threading.current_thread().name), weak=False, dispatch_uid="t")

    async def twice() -> list[str]:
        handler, bodies = Handler(), []
        for body in (b"one", b"two"):
            client = Client("/plain", body)
            await handler(client.scope, client.receive, client.send)
            assert (await client.answer.get())["status"] == 200
            bodies.append((await client.answer.get())["body"].decode())
        return bodies

    try:
        assert asyncio.run(twice()) == ["request_0:one", "request_0:two"]
        assert finished == ["request_0", "request_0"]
    finally:
        request_finished.disconnect(dispatch_uid="t")


def test_a_stream_is_sent_from_the_event_loop_and_closed_when_the_client_leaves() -> None:
    closed.clear()

    async def watch() -> bytes:
        client = Client("/ticking")
        request = asyncio.create_task(Handler()(client.scope, client.receive, client.send))
        assert (await client.answer.get())["status"] == 200
        first: bytes = (await client.answer.get())["body"]
        client.left.set()
        await request
        return first

    assert asyncio.run(watch()) == b"MainThread\n"
    assert closed.is_set()


@pytest.mark.filterwarnings("error")
def test_a_sync_body_is_read_in_the_pool_piece_by_piece() -> None:
    async def ask() -> list[bytes]:
        client = Client("/in-pieces")
        await Handler()(client.scope, client.receive, client.send)
        return [client.answer.get_nowait().get("body", b"") for _ in range(client.answer.qsize())]

    first, *pieces, last = asyncio.run(ask())
    assert (first, last) == (b"", b"")
    assert [piece.split()[0] for piece in pieces] == [b"0", b"1", b"2"]
    assert all(piece.split()[1].startswith(b"request_") for piece in pieces)  # a thread of the pool, whichever


def test_an_error_is_answered() -> None:
    async def ask() -> int:
        client = Client("/broken")
        await Handler()(client.scope, client.receive, client.send)
        status: int = (await client.answer.get())["status"]
        return status

    assert asyncio.run(ask()) == 500


def test_a_client_that_leaves_while_sending_gets_no_answer() -> None:
    async def ask() -> bool:
        client = Client("/plain")
        client.incoming = [{"type": "http.disconnect"}]
        await Handler()(client.scope, client.receive, client.send)
        return client.answer.empty()

    assert asyncio.run(ask())
