"""Around Django, in the event loop: the last word on what nothing inside has answered."""

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
"""Among a request's extensions, where the server has it: `await pour(source, count)` sends so many bytes of a socket as
the next part of a body whose length is known. Raises ReaderGone, EOFError where the source has fewer, and OSError where
it breaks off."""

UNHURRIED = "fermi.unhurried"
"""Among a request's extensions, where somebody has put it: the body may come as slowly as its client likes."""


class ReaderGone(ConnectionError):
    """Whom a body was for takes no more of it."""


class Answered:
    """The envelope for an exception that came before the first byte. After it there is no answer left to give: the
    server cuts the connection, which a reader of a stream takes as a reason to come back."""

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
    """In one piece. `of` "websocket": instead of accepting one."""
    about = [(b"content-type", content), (b"content-length", b"%d" % len(body)), *(headers or [])]
    kind = "websocket.http.response" if of == "websocket" else "http.response"
    await send({"type": f"{kind}.start", "status": status, "headers": about})
    await send({"type": f"{kind}.body", "body": body})


async def refuse(scope: Scope, send: Send, error: ApiError, headers: list[tuple[bytes, bytes]] | None = None) -> None:
    """The envelope; of a WebSocket, before it is accepted."""
    body = as_json(exception_handler.envelope(error, language(scope)))
    about = [(name.lower().encode(), value.encode()) for name, value in exception_handler.headers(error).items()]
    await answer(send, body, error.status, [*about, *(headers or [])], of=scope["type"])


def language(scope: Scope) -> str:
    return texts.asked_for(header(scope, b"accept-language"))


def header(scope: Mapping[str, Any], wanted: bytes) -> str:
    return next((value.decode("latin-1") for name, value in scope["headers"] if name == wanted), "")
