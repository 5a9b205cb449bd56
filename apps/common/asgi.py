"""ASGI helpers and middleware around Django: answers for errors outside of Django."""

import logging
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any

from apps.common import exception_handler, request_id, texts
from apps.common.errors import ApiError
from apps.common.renderers import render_json

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Mapping[str, Any]]]
Send = Callable[[Mapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

log = logging.getLogger(__name__)

SEND_FROM_SOCKET = "fermi.pour"
"""Key of a request's extension, where the server offers it: `await pour(source, count)` sends `count` bytes of a socket
as the next part of a body whose length is known. Raises ClientDisconnectedError, EOFError if the source ends early, and
OSError if it breaks."""

SLOW_BODY_ALLOWED = "fermi.unhurried"
"""Key of a request's extension: the request's body may arrive slowly."""


class ClientDisconnectedError(ConnectionError):
    """The client of a streamed body has disconnected."""


class ErrorResponseMiddleware:
    """Middleware that answers with the error envelope if an exception comes before the first byte. After it the server
    cuts the connection, upon which a client of a stream connects again."""

    def __init__(self, onward: App) -> None:
        self._onward = onward

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        begun = False

        async def sending(message: Mapping[str, Any]) -> None:
            nonlocal begun
            begun = True
            await send(message)

        try:
            await self._onward(scope, receive, sending)
        except Exception as error:
            if begun or scope["type"] not in ("http", "websocket"):
                raise
            given = request_id.set_request_id(get_header(scope, b"x-request-id"))
            known = exception_handler.to_api_error(error)
            if known.status >= 500:
                log.exception("request failed outside of Django")
            await send_error(scope, send, known, [(b"x-request-id", given.encode())])


async def send_response(
    send: Send,
    body: bytes,
    status: int = 200,
    headers: list[tuple[bytes, bytes]] | None = None,
    *,
    scope_type: str = "http",
    content_type: bytes = b"application/json",
) -> None:
    """Send a whole response. `scope_type` "websocket": it refuses the WebSocket."""
    about = [(b"content-type", content_type), (b"content-length", b"%d" % len(body)), *(headers or [])]
    kind = "websocket.http.response" if scope_type == "websocket" else "http.response"
    await send({"type": f"{kind}.start", "status": status, "headers": about})
    await send({"type": f"{kind}.body", "body": body})


async def send_error(
    scope: Scope, send: Send, error: ApiError, headers: list[tuple[bytes, bytes]] | None = None
) -> None:
    """Send the error envelope; for a WebSocket, before it is accepted."""
    body = render_json(exception_handler.build_envelope(error, get_request_language(scope)))
    about = [(name.lower().encode(), value.encode()) for name, value in exception_handler.build_headers(error).items()]
    await send_response(send, body, error.status, [*about, *(headers or [])], scope_type=scope["type"])


def get_request_language(scope: Scope) -> str:
    """Return the language of the Accept-Language header."""
    return texts.parse_accept_language(get_header(scope, b"accept-language"))


def get_header(scope: Mapping[str, Any], header_name: bytes) -> str:
    """Return the value of a header (lower-case name), or an empty text."""
    return next((value.decode("latin-1") for name, value in scope["headers"] if name == header_name), "")
