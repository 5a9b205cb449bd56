"""ASGI helpers and middleware around Django: answers for errors outside of Django."""

import logging
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any

from apps.common import exception_handler, request_id, texts
from apps.common.errors import ApiError
from apps.common.renderers import as_json

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Mapping[str, Any]]]
Send = Callable[[Mapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

log = logging.getLogger(__name__)

POUR = "fermi.pour"
"""Key of a request's extension, where the server offers it: `await pour(source, count)` sends `count` bytes of a socket
as the next part of a body whose length is known. Raises ClientDisconnectedError, EOFError if the source ends early, and
OSError if it breaks."""

UNHURRIED = "fermi.unhurried"
"""Key of a request's extension: the request's body may arrive slowly."""


class ReaderGone(ConnectionError):
    """The client of a streamed body has disconnected."""


class Answered:
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
            given = request_id.begin(header(scope, b"x-request-id"))
            known = exception_handler.translate(error)
            if known.status >= 500:
                log.exception("request failed outside of Django")
            await refuse(scope, send, known, [(b"x-request-id", given.encode())])


async def answer(
    send: Send,
    body: bytes,
    status: int = 200,
    headers: list[tuple[bytes, bytes]] | None = None,
    *,
    of: str = "http",
    content: bytes = b"application/json",
) -> None:
    """Send a whole response. `scope_type` "websocket": it refuses the WebSocket."""
    about = [(b"content-type", content), (b"content-length", b"%d" % len(body)), *(headers or [])]
    kind = "websocket.http.response" if of == "websocket" else "http.response"
    await send({"type": f"{kind}.start", "status": status, "headers": about})
    await send({"type": f"{kind}.body", "body": body})


async def refuse(scope: Scope, send: Send, error: ApiError, headers: list[tuple[bytes, bytes]] | None = None) -> None:
    """Send the error envelope; for a WebSocket, before it is accepted."""
    body = as_json(exception_handler.envelope(error, language(scope)))
    about = [(name.lower().encode(), value.encode()) for name, value in exception_handler.headers(error).items()]
    await answer(send, body, error.status, [*about, *(headers or [])], of=scope["type"])


def language(scope: Scope) -> str:
    """Return the language of the Accept-Language header."""
    return texts.asked_for(header(scope, b"accept-language"))


def header(scope: Mapping[str, Any], wanted: bytes) -> str:
    """Return the value of a header (lower-case name), or an empty text."""
    return next((value.decode("latin-1") for name, value in scope["headers"] if name == wanted), "")
