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
from apps.proxy.websocket_limits import MAX_MESSAGE_BYTES

HANDSHAKE_SECONDS = 30


async def connect_websocket(
    sock: socket.socket, scope: Scope, request_headers: headers.Headers, origin: str
) -> ClientConnection:
    """Connect to the environment's WebSocket. Follows no redirect, which would lead out of the environment. Raises
    websockets' InvalidHandshake and OSError."""
    scheme, _, host = origin.partition("://")
    name, port = hostnames.split_host(host)
    raw, query = scope["raw_path"].decode("latin-1"), scope["query_string"].decode("latin-1")
    uri = WebSocketURI(scheme == "https", name, int(port[1:] or 0) or (443 if scheme == "https" else 80), raw, query)
    offered = [Subprotocol(one) for one in scope["subprotocols"]]

    def made() -> ClientConnection:
        protocol = ClientProtocol(uri, origin=Origin(origin), subprotocols=offered or None, max_size=MAX_MESSAGE_BYTES)
        return ClientConnection(protocol, ping_interval=None, close_timeout=5, write_limit=1 << 18)

    sock.setblocking(False)
    _, connection = await asyncio.get_running_loop().create_connection(made, sock=sock)
    try:
        async with asyncio.timeout(HANDSHAKE_SECONDS):
            said = [(key.decode("latin-1"), value.decode("latin-1")) for key, value in request_headers]
            await connection.handshake(said, None)
    except BaseException:
        connection.transport.abort()
        raise
    return connection


async def relay_messages(
    receive: Receive, send: Send, connection: ClientConnection, *,
    hidden_cookies: frozenset[bytes], extra_headers: Iterable[tuple[bytes, bytes]],
) -> None:  # fmt: skip
    """Relay messages until one side has closed; the other is closed with the same code."""
    assert connection.response is not None
    raw = [(key.encode("latin-1"), value.encode("latin-1")) for key, value in connection.response.headers.raw_items()]
    cookies = [
        (key, value) for key, value in headers.filter_response_headers(raw, hidden_cookies) if key == b"set-cookie"
    ]
    await send(
        {"type": "websocket.accept", "subprotocol": connection.subprotocol, "headers": [*cookies, *extra_headers]}
    )
    tasks = [
        asyncio.ensure_future(_relay_to_environment(receive, connection)),
        asyncio.ensure_future(_relay_to_client(connection, send)),
    ]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _relay_to_environment(receive: Receive, connection: ClientConnection) -> None:
    while True:
        message = await receive()
        if message["type"] == "websocket.disconnect":
            await connection.close(to_sendable_code(message.get("code")), "")
            return
        said = message.get("text")
        try:
            await connection.send(message["bytes"] if said is None else said)
        except ConnectionClosed:
            return


async def _relay_to_client(connection: ClientConnection, send: Send) -> None:
    try:
        while True:
            message = await connection.recv()
            await send({"type": "websocket.send", "text" if isinstance(message, str) else "bytes": message})
    except ConnectionClosed as closed:
        code = to_sendable_code(closed.rcvd.code if closed.rcvd else 1011)
        await send({"type": "websocket.close", "code": code, "reason": closed.rcvd.reason if closed.rcvd else ""})


def to_sendable_code(code: int | None) -> int:
    """Return the close code to send: 1005, 1006 and 1015 mean that there was none, and are never sent (RFC 6455,
    7.4.1)."""
    if code is None or code in (1005, 1006):
        return 1000
    return code if (1000 <= code <= 1014 and code != 1004) or 3000 <= code <= 4999 else 1011
