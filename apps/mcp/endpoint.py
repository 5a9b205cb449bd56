"""The endpoint /mcp: checks host, origin, size and token of each request, then lets the official SDK answer it.

It is stateless: each request is authenticated by itself and may reach another web process; no session is kept. A
revoked token is refused with the next request.
"""

import asyncio
import logging
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from io import BytesIO
from typing import Any, cast
from urllib.parse import urlsplit

from django.conf import settings
from django.http.request import split_domain_port, validate_host
from mcp.server.context import ServerRequestContext
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

from apps.common import request_id
from apps.common.asgi import Receive, Scope, Send, get_header, send_error
from apps.common.errors import ApiError
from apps.common.open_connections import ConnectionLimit
from apps.mcp.api.authentication import TokenUser, authenticate
from apps.mcp.in_process import InProcessCaller
from apps.oauth.addresses import make_challenge
from fermi.mcp.caller import Caller
from fermi.mcp.server import find_version, make_server

MAX_BODY_BYTES = 256 << 10
MAX_CALLS = 32
"""Requests of a user that one web process answers at a time: a tool may wait for a minute."""

CALLER_KEY = "fermi.mcp.caller"

logging.getLogger("mcp").setLevel(logging.WARNING)  # at INFO it reports the end of each request


class McpEndpoint:
    """ASGI application of the endpoint. `handler`: Django's, which runs work in its pool and answers the API."""

    def __init__(self, handler: Any) -> None:
        self._handler = handler
        self._calls = ConnectionLimit(MAX_CALLS, "MCP_CALLS_TOO_MANY")
        self._running: asyncio.Task[None] | None = None
        self._manager: StreamableHTTPSessionManager | None = None
        self._starting = asyncio.Lock()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        given = request_id.set_request_id(get_header(scope, b"x-request-id"))
        try:
            check_request(scope)
            user = await self._authenticate(scope)
            with self._calls.one(user.user_id):
                manager = await self._get_manager()
                caller = InProcessCaller(self._handler, scope, user.rights)
                await manager.handle_request({**scope, CALLER_KEY: caller}, cast(Any, receive), send)
        except ApiError as error:
            headers = [(b"x-request-id", given.encode())]
            if error.status == 401:
                request, _ = self._handler.create_request(scope, BytesIO())
                headers.append((b"www-authenticate", make_challenge(request).encode()))
            if error.status == 405:
                headers.append((b"allow", b"POST"))
            await send_error(scope, send, error, headers)

    async def _authenticate(self, scope: Scope) -> TokenUser:
        request, _ = self._handler.create_request(scope, BytesIO())
        if request is None:
            raise ApiError(400, "PARSE_ERROR", detail="headers")
        user: TokenUser = await self._handler.run(partial(authenticate, request))
        return user

    async def _get_manager(self) -> StreamableHTTPSessionManager:
        """Return the SDK's manager, whose tasks run until the process ends: uvicorn serves without lifespan events."""
        async with self._starting:
            if self._manager is None or self._running is None or self._running.done():
                manager = StreamableHTTPSessionManager(
                    app=make_server(get_caller, find_version()), stateless=True, max_request_body_size=MAX_BODY_BYTES
                )
                started = asyncio.Event()
                self._running = asyncio.create_task(_run(manager, started))
                await started.wait()
                self._manager = manager
        return self._manager


async def _run(manager: StreamableHTTPSessionManager, started: asyncio.Event) -> None:
    async with manager.run():
        started.set()
        with suppress(asyncio.CancelledError):
            await asyncio.Event().wait()


def get_caller(context: ServerRequestContext[Any, Any]) -> Caller:
    """Return the caller of the HTTP request that a message came in."""
    assert context.request is not None
    caller: Caller = context.request.scope[CALLER_KEY]
    return caller


def check_request(scope: Mapping[str, Any]) -> None:
    """Raise ApiError for a host that is not this platform's, for an origin of another site, and for a method that has
    no meaning here: there are no sessions to end, and the server opens no streams of its own."""
    host = get_header(scope, b"host")
    name, _ = split_domain_port(host)
    if not name or not validate_host(name, settings.ALLOWED_HOSTS):
        raise ApiError(400, "HOST_NOT_ALLOWED", host=host[:200])
    origin = get_header(scope, b"origin")
    if origin and not _is_own_origin(origin, host):
        raise ApiError(403, "MCP_ORIGIN_OTHER", origin=origin[:200])
    if scope["method"] != "POST":
        raise ApiError(405, "METHOD_NOT_ALLOWED", detail=f"{scope['method']} {scope['path']}")


def _is_own_origin(origin: str, host: str) -> bool:
    """Return True for the origin of the host that the request names, and for those that the settings trust."""
    try:
        found = urlsplit(origin)
    except ValueError:
        return False
    return (found.scheme in ("http", "https") and found.netloc == host) or origin in settings.CSRF_TRUSTED_ORIGINS
