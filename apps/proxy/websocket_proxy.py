"""WebSockets through the proxy: uvicorn's on one side, the `websockets` library's on the other."""

import asyncio
import socket
from collections.abc import Iterable

from websockets.asyncio.client import ClientConnection
from websockets.client import ClientProtocol
from websockets.exceptions import ConnectionClosed
from websockets.typing import Origin, Subprotocol
from websockets.uri import WebSocketURI

from apps.common.asgi import Receive, Scope, Send
from apps.proxy import headers, hostnames
from apps.proxy.websocket_limits import LONGEST

HANDSHAKE_S = 30


async def open_at(sock: socket.socket, scope: Scope, passed: headers.Headers, origin: str) -> ClientConnection:
    """Connect to the environment's WebSocket. Follows no redirect, which would lead out of the environment. Raises
    websockets' InvalidHandshake and OSError."""
    scheme, _, host = origin.partition("://")
    name, port = hostnames.split(host)
    raw, query = scope["raw_path"].decode("latin-1"), scope["query_string"].decode("latin-1")
    uri = WebSocketURI(scheme == "https", name, int(port[1:] or 0) or (443 if scheme == "https" else 80), raw, query)
    offered = [Subprotocol(one) for one in scope["subprotocols"]]

    def made() -> ClientConnection:
        protocol = ClientProtocol(uri, origin=Origin(origin), subprotocols=offered or None, max_size=LONGEST)
        return ClientConnection(protocol, ping_interval=None, close_timeout=5, write_limit=1 << 18)

    sock.setblocking(False)
    _, connection = await asyncio.get_running_loop().create_connection(made, sock=sock)
    try:
        async with asyncio.timeout(HANDSHAKE_S):
            said = [(key.decode("latin-1"), value.decode("latin-1")) for key, value in passed]
            await connection.handshake(said, None)
    except BaseException:
        connection.transport.abort()
        raise
    return connection


async def relay(
    receive: Receive, send: Send, inside: ClientConnection, *,
    hidden: frozenset[bytes], more: Iterable[tuple[bytes, bytes]],
) -> None:  # fmt: skip
    """Relay messages until one side has closed; the other is closed with the same code."""
    assert inside.response is not None
    raw = [(key.encode("latin-1"), value.encode("latin-1")) for key, value in inside.response.headers.raw_items()]
    cookies = [(key, value) for key, value in headers.outward(raw, hidden) if key == b"set-cookie"]
    await send({"type": "websocket.accept", "subprotocol": inside.subprotocol, "headers": [*cookies, *more]})
    tasks = [asyncio.ensure_future(_inward(receive, inside)), asyncio.ensure_future(_outward(inside, send))]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _inward(receive: Receive, inside: ClientConnection) -> None:
    while True:
        message = await receive()
        if message["type"] == "websocket.disconnect":
            await inside.close(sayable(message.get("code")), "")
            return
        said = message.get("text")
        try:
            await inside.send(message["bytes"] if said is None else said)
        except ConnectionClosed:
            return


async def _outward(inside: ClientConnection, send: Send) -> None:
    try:
        while True:
            message = await inside.recv()
            await send({"type": "websocket.send", "text" if isinstance(message, str) else "bytes": message})
    except ConnectionClosed as closed:
        code = sayable(closed.rcvd.code if closed.rcvd else 1011)
        await send({"type": "websocket.close", "code": code, "reason": closed.rcvd.reason if closed.rcvd else ""})


def sayable(code: int | None) -> int:
    """Return the close code to send: 1005, 1006 and 1015 mean that there was none, and are never sent (RFC 6455,
    7.4.1)."""
    if code is None or code in (1005, 1006):
        return 1000
    return code if (1000 <= code <= 1014 and code != 1004) or 3000 <= code <= 4999 else 1011
