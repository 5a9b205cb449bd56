"""The ASGI handler: one thread for a request, the event loop for a stream, and an end when the client leaves."""

import asyncio
import json
import threading
from collections.abc import AsyncIterator
from typing import Any

import pytest
from django.core.signals import request_finished
from django.db import OperationalError
from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.test import override_settings
from django.urls import path

from apps.common import bounds
from apps.common.asgi import ErrorResponseMiddleware
from apps.common.errors import ApiError
from apps.workers.heartbeat.endpoint import HeartbeatEndpoint
from server.asgi import DjangoHandler

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


def test_a_request_runs_in_a_pool_thread() -> None:
    finished = []
    request_finished.connect(lambda **_: finished.append(threading.current_thread().name), weak=False, dispatch_uid="t")

    async def twice() -> list[str]:
        handler, bodies = DjangoHandler(), []
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


def test_a_stream_runs_on_the_event_loop_and_closes_with_the_client() -> None:
    closed.clear()

    async def watch() -> bytes:
        client = Client("/ticking")
        request = asyncio.create_task(DjangoHandler()(client.scope, client.receive, client.send))
        assert (await client.answer.get())["status"] == 200
        first: bytes = (await client.answer.get())["body"]
        client.left.set()
        await request
        return first

    assert asyncio.run(watch()) == b"MainThread\n"
    assert closed.is_set()


@pytest.mark.filterwarnings("error:StreamingHttpResponse must consume synchronous iterators")
def test_a_sync_body_is_read_in_the_pool() -> None:
    async def ask() -> list[bytes]:
        client = Client("/in-pieces")
        await DjangoHandler()(client.scope, client.receive, client.send)
        return [client.answer.get_nowait().get("body", b"") for _ in range(client.answer.qsize())]

    first, *pieces, last = asyncio.run(ask())
    assert (first, last) == (b"", b"")
    assert [piece.split()[0] for piece in pieces] == [b"0", b"1", b"2"]
    assert all(piece.split()[1].startswith(b"request_") for piece in pieces)  # a thread of the pool, whichever


def test_an_error_in_a_view_is_answered() -> None:
    async def ask() -> int:
        client = Client("/broken")
        await DjangoHandler()(client.scope, client.receive, client.send)
        status: int = (await client.answer.get())["status"]
        return status

    assert asyncio.run(ask()) == 500


def test_a_client_that_disconnects_while_sending_gets_no_answer() -> None:
    async def ask() -> bool:
        client = Client("/plain")
        client.incoming = [{"type": "http.disconnect"}]
        await DjangoHandler()(client.scope, client.receive, client.send)
        return client.answer.empty()

    assert asyncio.run(ask())


def collect_messages(app: Any, client: Client) -> list[Any]:
    """Every message of the answer."""

    async def ask() -> list[Any]:
        await app(client.scope, client.receive, client.send)
        return [client.answer.get_nowait() for _ in range(client.answer.qsize())]

    return asyncio.run(ask())


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (RuntimeError("the secret detail"), 500, "INTERNAL_ERROR"),
        (OperationalError("away"), 503, "DATABASE_UNAVAILABLE"),
    ],
)
def test_an_error_before_django_is_answered_with_the_envelope(error: Exception, status: int, code: str) -> None:
    async def broken(*_: Any) -> None:
        raise error

    client = Client("/api/v1/workers/heartbeat")
    client.scope["headers"] += [(b"accept-language", b"en"), (b"x-request-id", b"my-request.1")]
    head, body = collect_messages(ErrorResponseMiddleware(broken), client)
    headers = dict(head["headers"])
    told = json.loads(body["body"])
    assert (head["status"], told["code"], told["error"], told["requestId"]) == (status, status, code, "my-request.1")
    assert (headers[b"content-type"], headers[b"x-request-id"]) == (b"application/json", b"my-request.1")
    assert headers.get(b"retry-after") == (b"1" if status == 503 else None)
    assert "secret" not in str(told)


def test_a_failing_started_answer_is_cut() -> None:
    async def breaks_off(_: Any, __: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        raise RuntimeError("broken on purpose")

    client = Client("/api/v1/training-tasks/x/stream")
    with pytest.raises(RuntimeError, match="on purpose"):
        collect_messages(ErrorResponseMiddleware(breaks_off), client)
    assert client.answer.qsize() == 1


@pytest.mark.parametrize("declared", [0, 900])
def test_a_too_large_body_is_refused_early(declared: int) -> None:
    client = Client("/plain")
    client.incoming = [{"type": "http.request", "body": b"x" * 8, "more_body": True} for _ in range(100)]
    with pytest.raises(ApiError, match="BODY_TOO_LARGE"):
        asyncio.run(DjangoHandler().read_bounded(client.receive, 10, declared=declared))
    assert len(client.incoming) == (100 if declared else 98)


def test_a_large_body_of_an_anonymous_client_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor is it waited for: the answer to an upload by nobody does not depend on what is sent."""
    handler = DjangoHandler()
    bodies: list[Any] = []

    def respond(request: Any) -> HttpResponse:
        bodies.append(request._stream.read())
        return HttpResponse("")

    monkeypatch.setattr(handler, "get_response", respond)
    path = "/api/v1/projects/one/file-uploads/upload-1/content"
    for known in (False, True):
        monkeypatch.setattr("server.asgi.is_signed_in", lambda _, known=known: known)
        client = Client(path)
        client.scope["method"] = "PUT"
        client.incoming = [{"type": "http.request", "body": b"x" * 8}]
        collect_messages(handler, client)
        assert len(client.incoming) == (0 if known else 1)
    assert bodies == [b"", b"x" * 8]


@pytest.mark.parametrize(
    ("declared", "pieces", "code"),
    [
        (bounds.MAX_HEARTBEAT_BYTES + 1, [], "BODY_TOO_LARGE"),
        (0, [b" " * bounds.MIB] * 3, "BODY_TOO_LARGE"),
        (0, [b'{"workers":[' + b",".join([b"{}"] * 150_000) + b"]}"], "BODY_TOO_MANY_VALUES"),
    ],
)
def test_a_too_large_heartbeat_is_neither_parsed_nor_passed_on(
    monkeypatch: pytest.MonkeyPatch, declared: int, pieces: list[bytes], code: str
) -> None:
    monkeypatch.setattr(HeartbeatEndpoint, "_start", lambda _: None)
    monkeypatch.setattr("apps.workers.heartbeat.endpoint.orjson.loads", None)
    client = Client(bounds.HEARTBEAT_PATH)
    client.scope["headers"] += [(b"content-length", b"%d" % declared)] if declared else []
    client.incoming = [{"type": "http.request", "body": piece, "more_body": True} for piece in pieces]
    client.incoming[-1:] = [{**one, "more_body": len(pieces) > 1} for one in client.incoming[-1:]]
    head, body = collect_messages(ErrorResponseMiddleware(HeartbeatEndpoint(None)), client)  # type: ignore[arg-type]
    assert (head["status"], json.loads(body["body"])["error"]) == (413 if "LARGE" in code else 400, code)
