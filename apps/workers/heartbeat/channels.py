"""WebSockets by which agents bring streams from their hosts: each is connected to the process that waits for it (see
`apps.workers.engine.channels`). Handled in the event loop, before Django.

Bytes are binary messages; `{"end": true}` as a text message means that a side has no more.
"""

import asyncio
import hmac
import json
import re
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

from django.db import close_old_connections

from apps.common.asgi import App, Receive, Scope, Send
from apps.workers import tokens
from apps.workers.engine import channels
from apps.workers.models import Worker

PATH_PATTERN = re.compile(r"/api/v1/workers/([^/]+)/channels/([A-Za-z0-9_-]+)")
CHUNK_BYTES = 1 << 16
REFUSED_CODE = 4404
END_MESSAGE = json.dumps({"end": True})


class AgentChannelsApp:
    def __init__(self, onward: App) -> None:
        self._onward = onward
        self._database = ThreadPoolExecutor(2, "channels")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = PATH_PATTERN.fullmatch(scope["path"]) if scope["type"] == "websocket" else None
        if path is None:
            await self._onward(scope, receive, send)
            return
        await receive()
        loop = asyncio.get_running_loop()
        token = _get_bearer_token(scope)
        address = await loop.run_in_executor(self._database, _claim_channel, path[1], path[2], token)
        try:
            if address is None:
                raise OSError("nobody waits for it")
            reader, writer = await asyncio.open_connection(*address)
        except OSError:
            await send({"type": "websocket.close", "code": REFUSED_CODE})  # before it was accepted: HTTP 403
            return
        writer.write(path[2].encode() + b"\n")
        await send({"type": "websocket.accept"})
        await _bridge_streams(reader, writer, receive, send)


async def _bridge_streams(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, receive: Receive, send: Send
) -> None:
    """Relay until both sides have sent all, or one is gone."""
    both = [
        asyncio.ensure_future(_relay_to_agent(reader, send)),
        asyncio.ensure_future(_relay_from_agent(receive, writer)),
    ]
    try:
        await asyncio.wait(both, return_when=asyncio.FIRST_EXCEPTION)
    finally:
        for one in both:
            one.cancel()
        await asyncio.gather(*both, return_exceptions=True)
        writer.close()
        with suppress(Exception):  # the agent may have gone first
            await send({"type": "websocket.close", "code": 1000})


async def _relay_to_agent(reader: asyncio.StreamReader, send: Send) -> None:
    while data := await reader.read(CHUNK_BYTES):
        await send({"type": "websocket.send", "bytes": data})
    await send({"type": "websocket.send", "text": END_MESSAGE})


async def _relay_from_agent(receive: Receive, writer: asyncio.StreamWriter) -> None:
    """Relay from the agent. Raises ConnectionError if the agent disconnects before its end."""
    while True:
        message = await receive()
        if message["type"] == "websocket.disconnect":
            raise ConnectionAbortedError
        if data := message.get("bytes"):
            writer.write(data)
            await writer.drain()
        elif message.get("text"):
            writer.write_eof()
            return


def _claim_channel(worker: str, channel: str, token: str) -> tuple[str, int] | None:
    close_old_connections()
    try:
        known = Worker.objects.filter(pk=worker).values_list("digest", flat=True).first()
        if known is None or not hmac.compare_digest(known, tokens.hash_token(token)):
            return None
        return channels.claim_channel(worker, channel)
    finally:
        close_old_connections()


def _get_bearer_token(scope: Mapping[str, Any]) -> str:
    said = next((value for name, value in scope["headers"] if name == b"authorization"), b"").decode("latin-1")
    scheme, _, token = said.partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""
