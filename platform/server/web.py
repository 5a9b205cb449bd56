"""The web process: `python -m server.web [HOST] [PORT]`, or `fd:NUMBER`, a listening socket inherited from the parent
process.

Several of them may serve one socket, or stand behind a proxy. Logs go where Django's settings send them.
"""

import asyncio
import resource
import socket
import sys
from contextlib import suppress
from types import FrameType
from typing import Any

import uvicorn
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from uvicorn.server import STARTUP_FAILURE

from apps.proxy.websocket_limits import MAX_MESSAGE_BYTES
from fermi.runner.processes import refuse_tracers
from server import liveness
from server.env import read_setting
from server.http import HttpProtocol
from server.metrics_port import serve_metrics

INHERITED_PREFIX = "fd:"
KEEP_ALIVE_SECONDS = 75  # seconds
"""Longer than proxies and clients keep an idle connection (60 s are usual): otherwise one sends a request just when it
is closed here, and gets no answer."""

CHECK_INTERVAL_SECONDS = 5.0  # seconds, for connections with half a request on them


class WebSocketProtocol(WebSocketsSansIOProtocol):
    """uvicorn's protocol with a fix: a refusal with a response (`websocket.http.response`) completes the handshake;
    uvicorn 0.54 sends it, and then logs an error as if there had been none."""

    async def send(self, message: Any) -> None:
        await super().send(message)
        if message["type"] == "websocket.http.response.body" and not message.get("more_body"):
            self.handshake_complete = True


class SharedListenSocket(socket.socket):
    """A listening socket that other processes accept from, too; its backlog is not changed here."""

    def listen(self, backlog: int = 0, /) -> None:
        pass


class WebServer(uvicorn.Server):
    """uvicorn's server that wakes up once a second, for the Date header, instead of ten times; on a signal it ends at
    once. Closes connections with an unfinished request."""

    _told: tuple[asyncio.AbstractEventLoop, asyncio.Event] | None = None
    _looked = 0.0

    async def on_tick(self, counter: int) -> bool:
        now = asyncio.get_running_loop().time()
        if now >= self._looked + CHECK_INTERVAL_SECONDS:
            self._looked = now
            for connection in tuple(self.server_state.connections):
                if isinstance(connection, HttpProtocol):
                    connection.end_half_open(now)
        return await super().on_tick(counter)

    async def main_loop(self) -> None:
        if liveness.is_supervised():
            from server.asgi import THREAD_NAME_PREFIX, handler  # which uvicorn has imported by now

            liveness.answer_in_loop(handler.run, THREAD_NAME_PREFIX)
        told = asyncio.Event()
        self._told = asyncio.get_running_loop(), told
        while not await self.on_tick(0):
            with suppress(TimeoutError):
                async with asyncio.timeout(1.0):
                    await told.wait()
        for _ in range(2):  # requests that have come while others were answered are read: idle connections are closed
            await asyncio.sleep(0)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        super().handle_exit(sig, frame)
        if self._told:
            loop, told = self._told
            loop.call_soon_threadsafe(told.set)


def build_proxy_options(proxies: list[str]) -> dict[str, Any]:
    """Return uvicorn's options that take the client's address and scheme from X-Forwarded-For and -Proto where the
    connection comes from one of `proxies`; of several addresses the last one that is not a proxy's. From other
    connections these headers, and Forwarded and X-Forwarded-Host from any, are ignored."""
    return {"proxy_headers": bool(proxies), "forwarded_allow_ips": proxies}


def main(host: str = "127.0.0.1", port: str = "8000") -> None:
    """Serve until SIGTERM or SIGINT."""
    refuse_tracers()
    serve_metrics()
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # an open page and a host that waits are a file each
    shared: list[socket.socket] = (
        [SharedListenSocket(fileno=int(host.removeprefix(INHERITED_PREFIX)))]
        if host.startswith(INHERITED_PREFIX)
        else []
    )
    for one in shared:
        one.set_inheritable(False)
    server = WebServer(build_config(host, int(port), is_shared=bool(shared)))
    with suppress(KeyboardInterrupt):
        server.run(shared or None)
    if not server.started:
        sys.exit(STARTUP_FAILURE)


def build_config(host: str, port: int, *, is_shared: bool) -> uvicorn.Config:
    """Return uvicorn's configuration; `is_shared`: other processes listen on the same socket."""
    return uvicorn.Config(
        "server.asgi:application",
        host=host,
        port=port,
        loop="asyncio",  # also where uvloop is installed: its connections are not asyncio's (doors/streams.py)
        backlog=1
        if is_shared
        else 2048,  # also how many are taken at a time: the next one is for who has nothing to do
        lifespan="off",
        access_log=False,
        log_config=None,
        server_header=False,
        http=HttpProtocol,
        ws=WebSocketProtocol,
        **build_proxy_options(read_setting("FERMI_TRUSTED_PROXIES")),
        ws_max_size=MAX_MESSAGE_BYTES,
        ws_ping_timeout=None,  # a reader that waits (`fermi run … | less`) answers no ping; TCP knows who is gone
        ws_per_message_deflate=False,  # what is sent is small, or packed already; each connection would hold its window
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=3,  # seconds; open event streams would hold it for ever
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
