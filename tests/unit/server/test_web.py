"""How a web process ends: what came before it was told to is answered."""

import asyncio
import signal
import socket
import sys
import threading
from collections.abc import Awaitable, Callable, Mapping
from types import ModuleType
from typing import Any

import pytest
import uvicorn

from server.http import HttpProtocol
from server.web import KEEP_ALIVE_SECONDS, WebServer, build_config

ASK = b"GET /%s HTTP/1.1\r\nHost: localhost\r\n\r\n"


def answer(connection: socket.socket) -> bytes:
    """The body of two bytes; nothing where the connection is closed instead."""
    said = b""
    while not said.endswith(b"ok") and (more := connection.recv(4096)):
        said += more
    return said[-2:]


def test_a_request_in_flight_is_answered_before_connections_close() -> None:
    asked: list[str] = []

    async def application(scope: Any, _: Any, send: Callable[[Mapping[str, Any]], Awaitable[None]]) -> None:
        asked.append(scope["path"])
        if scope["path"] == "/first":
            server.handle_exit(signal.SIGTERM, None)
            asyncio.get_running_loop().call_soon(other.sendall, ASK % b"second")
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
        await send({"type": "http.response.body", "body": b"ok"})

    server = WebServer(uvicorn.Config(application, http=HttpProtocol, ws="none", lifespan="off", log_config=None))
    with socket.create_server(("127.0.0.1", 0)) as door:
        thread = threading.Thread(target=server.run, args=([door],), daemon=True)
        thread.start()
        with (
            socket.create_connection(door.getsockname(), timeout=60) as one,
            socket.create_connection(door.getsockname(), timeout=60) as other,
        ):
            other.sendall(ASK % b"before")
            assert answer(other) == b"ok"
            one.sendall(ASK % b"first")
            assert answer(other) == b"ok"
        thread.join(60)
    assert sorted(asked) == ["/before", "/first", "/second"]


def test_keep_alive_is_longer_than_that_of_proxies() -> None:
    assert KEEP_ALIVE_SECONDS > 60


def test_an_incomplete_request_is_noticed_without_other_traffic(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("server.web.CHECK_INTERVAL_SECONDS", 0.0)
    monkeypatch.setattr("server.http.REQUEST_TIMEOUT_SECONDS", 0.0)

    async def application(scope: Any, receive: Any, send: Any) -> None:
        raise AssertionError("there was no request")

    server = WebServer(uvicorn.Config(application, http=HttpProtocol, ws="none", lifespan="off", log_config=None))
    with socket.create_server(("127.0.0.1", 0)) as door:
        thread = threading.Thread(target=server.run, args=([door],), daemon=True)
        thread.start()
        with socket.create_connection(door.getsockname(), timeout=60) as one:
            one.sendall(ASK[:20])
            assert one.recv(4096).startswith(b"HTTP/1.1 408 ")
            assert one.recv(4096) == b""
        server.handle_exit(signal.SIGTERM, None)
        thread.join(60)
    assert not thread.is_alive()


def test_asyncio_s_own_loop_serves_where_uvloop_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Doors hand sockets over, which uvloop's connections do not let them."""
    monkeypatch.setitem(sys.modules, "uvloop", ModuleType("uvloop"))  # as any package's dependency may bring it
    make = build_config("127.0.0.1", 0, is_shared=False).get_loop_factory()
    assert make is not None
    loop = make()
    loop.close()
    assert isinstance(loop, asyncio.SelectorEventLoop)
