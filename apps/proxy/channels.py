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
from apps.accounts.api.permissions import require_scope
from apps.common import asgi, exception_handler, request_id
from apps.common.asgi import App, Receive, Scope, Send
from apps.common.bounds import MAX_CHANNELS
from apps.common.errors import ApiError
from apps.common.open_connections import ConnectionLimit
from apps.common.texts import render_text
from apps.proxy import channel_authentication, envd_requests, envd_streams, rank_target, tickets
from apps.proxy.access_watch import RevocationWatcher, run_in_thread
from apps.proxy.authorizations import Authorization
from apps.proxy.channel_authentication import Requester
from apps.proxy.envd_requests import EnvdRequest
from apps.proxy.envd_streams import EnvdStream
from fermi.envd import protocol
from fermi.jobs.errors import BackendError

log = logging.getLogger(__name__)
_ENVIRONMENT = re.compile(r"/api/v1/dev-environments/([^/]+)/channel")
_RANK = re.compile(r"/api/v1/training-tasks/([^/]+)/ranks/([0-9]{1,9})/channel")
REQUEST_SECONDS = 30
"""Timeout of the client's first message."""
DialFunction = Callable[[EnvdRequest], Awaitable[tuple[socket.socket, dict[str, Any]]]]


@dataclass(frozen=True, slots=True)
class ChannelTarget:
    """Target of a channel. In the audit trail `what` stands before the verb, with `target` and `audit_params`."""

    asker: Requester
    authorization: Authorization
    what: str
    target: str
    audit_params: Mapping[str, Any]
    dial: DialFunction
    takes: tuple[str, ...] = ("port", "exec")


class ChannelsApp:
    """ASGI application of channels; other requests go `onward`."""

    def __init__(self, onward: App) -> None:
        self._onward = onward
        self._watch = RevocationWatcher()
        self._open = ConnectionLimit(MAX_CHANNELS, "CHANNELS_TOO_MANY")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        way = self._way(scope["path"]) if scope["type"] == "websocket" else None
        if way is None:
            await self._onward(scope, receive, send)
            return
        given = request_id.set_request_id(asgi.get_header(scope, b"x-request-id"))
        await receive()  # its "connect"
        try:
            opened = await run_in_thread(
                lambda: _run_with_request_id(given, lambda: way(channel_authentication.authenticate_requester(scope)))
            )
        except Exception as error:
            known = exception_handler.to_api_error(error)
            if known.status >= 500:
                log.exception("a channel failed before it was open")
            await asgi.send_error(scope, send, known)
            return
        try:
            with self._open.one(opened.asker.user.pk):
                await self._carry(opened, given, scope, receive, send)
        except ApiError as error:
            await asgi.send_error(scope, send, error)

    async def _carry(
        self, opened: ChannelTarget, request_number: str, scope: Scope, receive: Receive, send: Send
    ) -> None:
        await send({"type": "websocket.accept"})
        with self._watch.watch_access(opened.authorization) as over:
            talk = asyncio.ensure_future(
                _serve_channel(opened, request_number, asgi.get_request_language(scope), receive, send)
            )
            try:
                await asyncio.wait((talk, over), return_when=asyncio.FIRST_COMPLETED)
                if talk.done():
                    talk.result()
                else:
                    await _close_websocket(send, 1008, "DOOR_CLOSED")
            finally:
                talk.cancel()
                await asyncio.gather(talk, return_exceptions=True)

    @staticmethod
    def _way(path: str) -> Callable[[Requester], ChannelTarget] | None:
        if found := _ENVIRONMENT.fullmatch(path):
            environment = found[1]
            return lambda asker: _open_environment(asker, environment)
        if found := _RANK.fullmatch(path):
            task, rank = found[1], int(found[2])
            return lambda asker: _open_rank(asker, task, rank)
        return None


def _open_environment(asker: Requester, environment_id: str) -> ChannelTarget:
    require_scope(asker.user, "environments:open")
    environment = tickets.get_accessible_environment(asker.user, environment_id)

    async def dial(request: EnvdRequest) -> tuple[socket.socket, dict[str, Any]]:
        return await envd_streams.open_envd_socket(environment, request)

    held = asker.authorize(environment.project_id, environment.pk)
    return ChannelTarget(asker, held, "environment", environment.pk, {}, dial)


def _open_rank(asker: Requester, task_id: str, rank: int) -> ChannelTarget:
    require_scope(asker.user, "environments:open", task_id)
    place = rank_target.find_rank_target(asker.user, task_id, rank)
    held = asker.authorize(place.project, place.environment.pk)
    told = {"rank": rank, "environment": place.environment.pk}
    return ChannelTarget(asker, held, "task", task_id, told, place.dial, ("exec",))


def _run_with_request_id(request_number: str, build: Callable[[], ChannelTarget]) -> ChannelTarget:
    """Call `build` with the request's id: context variables are not copied into threads."""
    request_id.set_request_id(request_number)
    return build()


async def _serve_channel(channel: ChannelTarget, request_number: str, lang: str, receive: Receive, send: Send) -> None:
    try:
        async with asyncio.timeout(REQUEST_SECONDS):
            message = await receive()
    except TimeoutError:
        await _close_websocket(send, 1008, "CHANNEL_REQUEST")
        return
    if message["type"] == "websocket.disconnect":
        return
    try:
        asked = envd_requests.parse_request(message.get("text") or "")
        if asked["open"] not in channel.takes:
            raise ValueError("open")
    except ValueError as wrong:
        await _send_refusal(send, lang, "CHANNEL_REQUEST", {"field": str(wrong) or "–"})
        return
    await run_in_thread(lambda: _record_audit(channel, request_number, asked))
    try:
        sock, answer = await channel.dial(asked)
    except (BackendError, envd_streams.EnvdRefusedError) as error:
        await _send_refusal(send, lang, error.code, error.params)
        return
    except (OSError, protocol.ProtocolError) as error:
        await _send_refusal(
            send, lang, "DOOR_BROKE", {"environment": channel.authorization.environment, "why": type(error).__name__}
        )
        return
    stream = await EnvdStream.from_socket(sock)
    try:
        await send({"type": "websocket.send", "text": json.dumps(answer)})
        carried = _PortForward(stream) if asked["open"] == "port" else _ExecSession(stream)
        await _run_both(carried.inward(receive), carried.outward(send), send)
    finally:
        stream.close()


def _record_audit(channel: ChannelTarget, request_number: str, request: EnvdRequest) -> None:
    request_id.set_request_id(request_number)
    verb, kept = envd_requests.describe_for_audit(request)
    with transaction.atomic():
        audit.record_event(
            channel.asker.user,
            f"{channel.what}.{verb}",
            channel.target,
            project=channel.authorization.project,
            **channel.audit_params,
            **kept,
        )


async def _run_both(
    to_environment: Coroutine[Any, Any, None], to_client: Coroutine[Any, Any, None], send: Send
) -> None:
    """Relay until the client has gone, or the environment has sent all."""
    inward, outward = asyncio.ensure_future(to_environment), asyncio.ensure_future(to_client)
    try:
        done, _ = await asyncio.wait((inward, outward), return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
        if outward in done:
            await _close_websocket(send, 1000, "")
    except (OSError, protocol.ProtocolError):
        await _close_websocket(send, 1011, "DOOR_BROKE")
    except ValueError:
        await _close_websocket(send, 1003, "CHANNEL_REQUEST")
    finally:
        for task in (inward, outward):
            task.cancel()
        await asyncio.gather(inward, outward, return_exceptions=True)


class _PortForward:
    """Relay of bytes, either side of which may end before the other."""

    def __init__(self, stream: EnvdStream) -> None:
        self._stream = stream
        self._ended = asyncio.Event()

    async def inward(self, receive: Receive) -> None:
        while (message := await receive())["type"] != "websocket.disconnect":
            if message.get("bytes") is not None and not self._ended.is_set():
                await self._stream.write(message["bytes"])
            elif _is_end(message.get("text")):
                self._stream.end_writing()
                self._ended.set()
            else:
                raise ValueError("neither bytes nor their end")

    async def outward(self, send: Send) -> None:
        while piece := await self._stream.read():
            await send({"type": "websocket.send", "bytes": piece})
        await send({"type": "websocket.send", "text": json.dumps({"end": True})})
        await self._ended.wait()


class _ExecSession:
    """Relay of an exec session. Browsers cannot pause a WebSocket, so they send `{"flow": false}`, and `true` when they
    have caught up."""

    def __init__(self, stream: EnvdStream) -> None:
        self._stream = stream
        self._flows = asyncio.Event()
        self._flows.set()

    async def inward(self, receive: Receive) -> None:
        while (message := await receive())["type"] != "websocket.disconnect":
            said = message.get("bytes")
            if (flows := _read_flow(message.get("text"))) is not None:
                self._flows.set() if flows else self._flows.clear()
                continue
            if not said or said[0] not in (protocol.IN, protocol.CONTROL) or len(said) > protocol.MAX_FRAME_BYTES:
                raise ValueError("no frame")
            await self._stream.write(protocol.encode_frame(said[0], said[1:]))

    async def outward(self, send: Send) -> None:
        frames = protocol.FrameDecoder()
        while piece := await self._stream.read():
            for channel, payload in frames.feed(piece):
                await self._flows.wait()
                await send({"type": "websocket.send", "bytes": bytes((channel,)) + payload})


def _is_end(text: str | None) -> bool:
    return _parse_message(text) == {"end": True}


def _read_flow(text: str | None) -> bool | None:
    flow = _parse_message(text).get("flow")
    return flow if isinstance(flow, bool) else None


def _parse_message(text: str | None) -> Mapping[str, Any]:
    """Return the message; empty if it is not valid."""
    try:
        return protocol.parse_line((text or "{}").encode())
    except (protocol.ProtocolError, UnicodeEncodeError):
        return {}


async def _send_refusal(send: Send, lang: str, code: str, params: Mapping[str, Any]) -> None:
    message, hint = render_text(code, params, lang)
    said = {"ok": False, "code": code, "params": dict(params), "message": message, "hint": hint}
    await send({"type": "websocket.send", "text": json.dumps(said, default=str)})
    await _close_websocket(send, 1000, "")


async def _close_websocket(send: Send, code: int, reason: str) -> None:
    await send({"type": "websocket.close", "code": code, "reason": reason})
