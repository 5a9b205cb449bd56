"""Around Django, in the event loop: the last word on what nothing inside has answered."""

import logging
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any

from apps.common import handler, request_id, texts
from apps.common.renderers import as_json

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Mapping[str, Any]]]
Send = Callable[[Mapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

log = logging.getLogger(__name__)


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
            if begun or scope["type"] != "http":
                raise
            given = request_id.begin(_header(scope, b"x-request-id"))
            log.exception("request failed outside of Django")
            known = handler.translate(error)
            body = as_json(handler.envelope(known, language(scope)))
            await answer(send, body, known.status, [(b"x-request-id", given.encode())])


async def answer(send: Send, body: bytes, status: int = 200, headers: list[tuple[bytes, bytes]] | None = None) -> None:
    """JSON, in one piece."""
    about = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body)), *(headers or [])]
    await send({"type": "http.response.start", "status": status, "headers": about})
    await send({"type": "http.response.body", "body": body})


def language(scope: Scope) -> str:
    return texts.asked_for(_header(scope, b"accept-language"))


def _header(scope: Scope, wanted: bytes) -> str:
    return next((value.decode("latin-1") for name, value in scope["headers"] if name == wanted), "")
