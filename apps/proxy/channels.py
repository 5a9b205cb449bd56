"""Terminals, commands and tunnels: WebSockets of the API that talk to an environment's daemon as `fermi.envd.protocol`
describes.

    /api/v1/dev-environments/{id}/channel                 into an environment
    /api/v1/training-tasks/{id}/ranks/{rank}/channel      next to a running rank
"""

import asyncio
import json
import logging
import re
import socket
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any

from django.db import transaction

from apps.accounts import audit
from apps.common import asgi, exception_handler, request_id
from apps.common.asgi import App, Receive, Scope, Send
from apps.common.bounds import MAX_CHANNELS
from apps.common.errors import ApiError
from apps.common.open_connections import Open
from apps.common.texts import text
from apps.proxy import authentication, envd_requests, envd_streams, rank_target, tickets
from apps.proxy.access_watch import Watch, in_thread
from apps.proxy.authentication import Asker
from apps.proxy.envd_requests import Request
from apps.proxy.envd_streams import Stream
from apps.proxy.sessions import Pass
from fermi.envd import protocol
from fermi.jobs.errors import BackendError

log = logging.getLogger(__name__)
_ENVIRONMENT = re.compile(r"/api/v1/dev-environments/([^/]+)/channel")
_RANK = re.compile(r"/api/v1/training-tasks/([^/]+)/ranks/([0-9]{1,9})/channel")
FIRST_S = 30
"""Timeout of the client's first message."""
Dialled = Callable[[Request], Awaitable[tuple[socket.socket, dict[str, Any]]]]


@dataclass(frozen=True, slots=True)
class Way:
    """Target of a channel. In the audit trail `what` stands before the verb, with `target` and `told`."""

    asker: Asker
    held: Pass
    what: str
    target: str
    told: Mapping[str, Any]
    dial: Dialled
    takes: tuple[str, ...] = ("port", "exec")


class Channels:
    """ASGI application of channels; other requests go `onward`."""

    def __init__(self, onward: App) -> None:
        self._onward = onward
        self._watch = Watch()
        self._open = Open(MAX_CHANNELS, "CHANNELS_TOO_MANY")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        way = self._way(scope["path"]) if scope["type"] == "websocket" else None
        if way is None:
            await self._onward(scope, receive, send)
            return
        given = request_id.begin(asgi.header(scope, b"x-request-id"))
        await receive()  # its "connect"
        try:
            opened = await in_thread(lambda: _within(given, lambda: way(authentication.asker(scope))))
        except Exception as error:
            known = exception_handler.translate(error)
            if known.status >= 500:
                log.exception("a channel failed before it was open")
            await asgi.refuse(scope, send, known)
            return
        try:
            with self._open.one(opened.asker.user.pk):
                await self._carry(opened, given, scope, receive, send)
        except ApiError as error:
            await asgi.refuse(scope, send, error)

    async def _carry(self, opened: Way, given: str, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "websocket.accept"})
        with self._watch.held(opened.held) as over:
            talk = asyncio.ensure_future(_talk(opened, given, asgi.language(scope), receive, send))
            try:
                await asyncio.wait((talk, over), return_when=asyncio.FIRST_COMPLETED)
                if talk.done():
                    talk.result()
                else:
                    await _close(send, 1008, "DOOR_CLOSED")
            finally:
                talk.cancel()
                await asyncio.gather(talk, return_exceptions=True)

    @staticmethod
    def _way(path: str) -> Callable[[Asker], Way] | None:
        if found := _ENVIRONMENT.fullmatch(path):
            environment = found[1]
            return lambda asker: _into(asker, environment)
        if found := _RANK.fullmatch(path):
            task, rank = found[1], int(found[2])
            return lambda asker: _beside(asker, task, rank)
        return None


def _into(asker: Asker, environment_id: str) -> Way:
    environment = tickets.enterable(asker.user, environment_id)

    async def dial(asked: Request) -> tuple[socket.socket, dict[str, Any]]:
        return await envd_streams.socket_to(environment, asked)

    held = asker.held(environment.project_id, environment.pk)
    return Way(asker, held, "environment", environment.pk, {}, dial)


def _beside(asker: Asker, task_id: str, rank: int) -> Way:
    place = rank_target.place(asker.user, task_id, rank)
    held = asker.held(place.project, place.environment.pk)
    told = {"rank": rank, "environment": place.environment.pk}
    return Way(asker, held, "task", task_id, told, place.dial, ("exec",))


def _within(given: str, ask: Callable[[], Way]) -> Way:
    """Call `build` with the request's id: context variables are not copied into threads."""
    request_id.begin(given)
    return ask()


async def _talk(way: Way, given: str, lang: str, receive: Receive, send: Send) -> None:
    try:
        async with asyncio.timeout(FIRST_S):
            message = await receive()
    except TimeoutError:
        await _close(send, 1008, "CHANNEL_REQUEST")
        return
    if message["type"] == "websocket.disconnect":
        return
    try:
        asked = envd_requests.read(message.get("text") or "")
        if asked["open"] not in way.takes:
            raise ValueError("open")
    except ValueError as wrong:
        await _no(send, lang, "CHANNEL_REQUEST", {"field": str(wrong) or "–"})
        return
    await in_thread(lambda: _record(way, given, asked))
    try:
        sock, answer = await way.dial(asked)
    except (BackendError, envd_streams.Refused) as error:
        await _no(send, lang, error.code, error.params)
        return
    except (OSError, protocol.WireError) as error:
        await _no(send, lang, "DOOR_BROKE", {"environment": way.held.environment, "why": type(error).__name__})
        return
    stream = await Stream.over(sock)
    try:
        await send({"type": "websocket.send", "text": json.dumps(answer)})
        carried = _Port(stream) if asked["open"] == "port" else _Frames(stream)
        await _both(carried.inward(receive), carried.outward(send), send)
    finally:
        stream.close()


def _record(way: Way, given: str, asked: Request) -> None:
    request_id.begin(given)
    verb, kept = envd_requests.audited(asked)
    with transaction.atomic():
        audit.record(way.asker.user, f"{way.what}.{verb}", way.target, project=way.held.project, **way.told, **kept)


async def _both(going: Coroutine[Any, Any, None], coming: Coroutine[Any, Any, None], send: Send) -> None:
    """Relay until the client has gone, or the environment has sent all."""
    inward, outward = asyncio.ensure_future(going), asyncio.ensure_future(coming)
    try:
        done, _ = await asyncio.wait((inward, outward), return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
        if outward in done:
            await _close(send, 1000, "")
    except (OSError, protocol.WireError):
        await _close(send, 1011, "DOOR_BROKE")
    except ValueError:
        await _close(send, 1003, "CHANNEL_REQUEST")
    finally:
        for task in (inward, outward):
            task.cancel()
        await asyncio.gather(inward, outward, return_exceptions=True)


class _Port:
    """Relay of bytes, either side of which may end before the other."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._ended = asyncio.Event()

    async def inward(self, receive: Receive) -> None:
        while (message := await receive())["type"] != "websocket.disconnect":
            if message.get("bytes") is not None and not self._ended.is_set():
                await self._stream.write(message["bytes"])
            elif _ends(message.get("text")):
                self._stream.end_writing()
                self._ended.set()
            else:
                raise ValueError("neither bytes nor their end")

    async def outward(self, send: Send) -> None:
        while piece := await self._stream.read():
            await send({"type": "websocket.send", "bytes": piece})
        await send({"type": "websocket.send", "text": json.dumps({"end": True})})
        await self._ended.wait()


class _Frames:
    """Relay of an exec session. Browsers cannot pause a WebSocket, so they send `{"flow": false}`, and `true` when they
    have caught up."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._flows = asyncio.Event()
        self._flows.set()

    async def inward(self, receive: Receive) -> None:
        while (message := await receive())["type"] != "websocket.disconnect":
            said = message.get("bytes")
            if (flows := _flow(message.get("text"))) is not None:
                self._flows.set() if flows else self._flows.clear()
                continue
            if not said or said[0] not in (protocol.IN, protocol.CONTROL) or len(said) > protocol.LONGEST_FRAME:
                raise ValueError("no frame")
            await self._stream.write(protocol.frame(said[0], said[1:]))

    async def outward(self, send: Send) -> None:
        frames = protocol.Frames()
        while piece := await self._stream.read():
            for channel, payload in frames.feed(piece):
                await self._flows.wait()
                await send({"type": "websocket.send", "bytes": bytes((channel,)) + payload})


def _ends(said: str | None) -> bool:
    return _read(said) == {"end": True}


def _flow(said: str | None) -> bool | None:
    flow = _read(said).get("flow")
    return flow if isinstance(flow, bool) else None


def _read(said: str | None) -> Mapping[str, Any]:
    """Return the message; empty if it is not valid."""
    try:
        return protocol.read_line((said or "{}").encode())
    except (protocol.WireError, UnicodeEncodeError):
        return {}


async def _no(send: Send, lang: str, code: str, params: Mapping[str, Any]) -> None:
    message, hint = text(code, params, lang)
    said = {"ok": False, "code": code, "params": dict(params), "message": message, "hint": hint}
    await send({"type": "websocket.send", "text": json.dumps(said, default=str)})
    await _close(send, 1000, "")


async def _close(send: Send, code: int, reason: str) -> None:
    await send({"type": "websocket.close", "code": code, "reason": reason})
