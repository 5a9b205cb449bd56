"""Heartbeats, answered in the event loop before Django: from memory, and held open while there is nothing new. They
come by ASGI, or directly from the HTTP server.

An invalid heartbeat goes on to Django, whose view answers what is wrong with it.
"""

import asyncio
from collections import defaultdict
from collections.abc import Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import orjson
from django.conf import settings
from django.db import connection

from apps.common import asgi, bounds
from apps.common.asgi import App, Receive, Scope, Send
from apps.common.encoding import encode_json
from apps.common.errors import ApiError
from apps.common.texts import parse_accept_language, render_text
from apps.workers.heartbeat import schema
from apps.workers.heartbeat.cache import HeartbeatCache
from apps.workers.heartbeat.schema import HeartbeatEntry
from apps.workers.heartbeat.sync import CacheSync
from apps.workers.heartbeat.telemetry import TelemetryCollector


class HeartbeatEndpoint:
    """ASGI application of heartbeats; other requests go `onward`."""

    def __init__(self, onward: App) -> None:
        self._onward = onward
        self._cache = HeartbeatCache(self._changed)
        self._used = TelemetryCollector()
        self._sync = CacheSync(self._cache, self._used)
        self._started = False
        self._database = ThreadPoolExecutor(1, "heartbeats")
        self._loop: asyncio.AbstractEventLoop | None = None
        self._waiting: defaultdict[str, set[asyncio.Event]] = defaultdict(set)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._start()
        if scope["type"] != "http" or scope["path"] != bounds.HEARTBEAT_PATH or scope["method"] != "POST":
            await self._onward(scope, receive, send)
            return
        body = await _read_body(receive, int(asgi.get_header(scope, b"content-length") or 0))
        if bounds.has_too_many_values(body):
            raise ApiError(400, "BODY_TOO_MANY_VALUES", limit=bounds.MAX_VALUES)
        try:
            wait, heard = schema.parse_heartbeat(orjson.loads(body))
        except ValueError:  # orjson's error is one
            await self._onward(scope, _replay_body(body, receive), send)
            return
        lang = parse_accept_language(asgi.get_header(scope, b"accept-language"))
        await asgi.send_response(send, await self._answer(heard, wait, lang))

    def _start(self) -> None:
        if not self._started:  # whatever is asked first: somebody listens from here on
            self._started = True
            self._sync.start()

    async def _answer(self, entries: list[HeartbeatEntry], wait: float, lang: str) -> bytes:
        self._loop = asyncio.get_running_loop()
        if strangers := self._cache.strangers(entries):
            await self._loop.run_in_executor(self._database, self._load, strangers)
        answers = self._cache.hear(entries, lang)
        self._used.hear(zip(entries, answers, strict=True))
        if self._cache.urgent:
            self._sync.hurry()
        if wait and not self._cache.has_news(entries):
            await self._until_news(entries, min(wait, settings.WORKER_HEARTBEAT_SECONDS))
            answers = self._cache.answers(entries, lang)
        return _encode_answer(answers, lang)

    async def _until_news(self, entries: list[HeartbeatEntry], seconds: float) -> None:
        news = asyncio.Event()
        try:
            for beat in entries:
                self._waiting[beat.worker].add(news)
            if not self._cache.has_news(entries):  # it may have come between the look and here
                async with asyncio.timeout(seconds):
                    await news.wait()
        except TimeoutError:
            pass
        finally:
            for beat in entries:
                self._waiting[beat.worker].discard(news)
                if not self._waiting[beat.worker]:
                    del self._waiting[beat.worker]

    def _load(self, workers: list[str]) -> None:
        try:
            self._cache.load(workers)
        finally:
            connection.close_if_unusable_or_obsolete()

    def _changed(self, workers: Collection[str]) -> None:
        """Wake held requests; called in the thread of `CacheSync`."""
        if self._loop and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._ring, workers)

    def _ring(self, workers: Collection[str]) -> None:
        for worker in workers:
            for news in self._waiting.get(worker, ()):
                news.set()


def _encode_answer(workers: list[dict[str, Any]], lang: str) -> bytes:
    data = {"intervalSeconds": settings.WORKER_HEARTBEAT_SECONDS, "workers": workers}
    return encode_json({"code": 200, "message": render_text("OK", lang=lang)[0], "data": data})


async def _read_body(receive: Receive, declared: int) -> bytes:
    """Return the body. Raises ApiError 413 as soon as it is known to be too large."""
    pieces: list[bytes] = []
    size = declared
    while size <= bounds.MAX_HEARTBEAT_BYTES:
        message = await receive()
        pieces.append(message.get("body", b""))
        if not message.get("more_body"):
            return b"".join(pieces)
        size = sum(map(len, pieces))
    raise ApiError(413, "BODY_TOO_LARGE", limit=bounds.MAX_HEARTBEAT_BYTES)


def _replay_body(body: bytes, receive: Receive) -> Receive:
    """Return a `receive` that gives the body that was read, then the rest."""
    first = [body]

    async def again() -> Mapping[str, Any]:
        if first:
            return {"type": "http.request", "body": first.pop()}
        return await receive()

    return again
