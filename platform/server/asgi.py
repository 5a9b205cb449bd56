"""ASGI application that uvicorn serves: Django with one thread hop per request.

Django's own ASGI handler switches between event loop and threads at each border of sync and async middleware and gives
each request a new thread with a new database connection; measured here, a health check took 4.4 ms and an API read 7.7
ms, against 0.9 and 2.4 with the handler below. All middleware and views are sync, except the event streams. Workers'
heartbeats, by far the most frequent requests, are answered before it; so are requests that are proxied to environments,
which have host names of their own (`apps.proxy`), and those of agents at /mcp (`apps.mcp`).
"""

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, MutableMapping
from concurrent.futures import ThreadPoolExecutor
from contextvars import Context, copy_context
from functools import partial
from io import BytesIO
from tempfile import SpooledTemporaryFile
from typing import IO, Any, TypeVar, cast
from urllib.parse import urlsplit

import django
from asgiref.sync import sync_to_async
from django.conf import settings
from django.core import signals
from django.core.exceptions import BadRequest, RequestAborted
from django.core.handlers.asgi import ASGIHandler, ASGIRequest, get_script_prefix
from django.core.handlers.base import BaseHandler
from django.db import close_old_connections
from django.http.request import split_domain_port, validate_host
from django.http.response import FileResponse, HttpResponseBase, StreamingHttpResponse
from django.urls import set_script_prefix

from server.liveness import POOL_PROGRESS

Receive = Callable[[], Awaitable[Mapping[str, Any]]]
Send = Callable[[Mapping[str, Any]], Awaitable[None]]

MAX_THREADS = 16
THREAD_NAME_PREFIX = "request"
HEALTH_PATH = "/healthz"

T = TypeVar("T")


class DjangoHandler(ASGIHandler):
    """Runs the whole sync request in one of a few long-lived threads, each with its own database connection.

    A streaming body is then sent from the event loop, until the client disconnects. Database queries of streams run in
    one thread that all of them share, so that open pages hold no connections.
    """

    def __init__(self) -> None:
        BaseHandler.__init__(self)  # not ASGIHandler's, which would load the middleware for its own way of calling it
        self.load_middleware(is_async=False)
        self._pool = ThreadPoolExecutor(MAX_THREADS, THREAD_NAME_PREFIX)

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            await send_error(scope, send, ApiError(404, "NO_SUCH_ADDRESS", path=scope["path"]))
            return
        if scope["type"] != "http":
            raise ValueError(f"only HTTP is served here, not {scope['type']}")
        if _is_health_check(scope):
            given = request_id.set_request_id(get_header(scope, b"x-request-id"))
            about = [(b"cache-control", b"no-store"), (b"x-request-id", given.encode())]
            await send_response(send, b'{"status": "ok"}', headers=about)
            return
        may = bounds.get_body_limit(scope["method"], scope["path"])
        try:
            if may.authenticated_only and not await self.run(partial(self._is_signed_in, scope)):
                body: IO[bytes] = BytesIO()  # nobody's is not read: the answer does not depend on it
            else:
                body = await self.read_bounded(
                    receive, may.most(), declared=int(get_header(scope, b"content-length") or 0)
                )
        except RequestAborted:
            return
        with body:
            request, _ = self.create_request(scope, body)
            if request is None:
                raise BadRequest("a request that cannot be decoded")
            context = copy_context()
            response = await self.run(partial(context.run, self._in_thread, request))
        if response.streaming:
            await self._stream(response, receive, send, context)
        else:
            await self.send_response(response, send)

    def create_request(self, scope: Mapping[str, Any], body_file: IO[bytes]) -> Any:
        """Return the request as Django's handler does. A request to the host in FERMI_PUBLIC_URL gets its scheme,
        whether or not a proxy names it."""
        public = urlsplit(settings.PUBLIC_URL)
        if public.netloc and public.netloc == get_header(scope, b"host"):
            scope = {**scope, "scheme": public.scheme}
        return super().create_request(scope, body_file)

    async def read_bounded(self, receive: Receive, limit: int, declared: int = 0) -> IO[bytes]:
        """Return the body, of `limit` bytes at most. Raise ApiError as soon as it is known to be larger: the client
        gets the answer, and the server drops the rest of the body. Raise RequestAborted where the client disconnects.
        """
        if declared > limit:
            raise ApiError(413, "BODY_TOO_LARGE", limit=limit)
        body = SpooledTemporaryFile(max_size=settings.FILE_UPLOAD_MAX_MEMORY_SIZE)  # noqa: SIM115  (closed by `with body`)
        try:
            while True:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise RequestAborted
                body.write(message.get("body", b""))
                if body.tell() > limit:
                    raise ApiError(413, "BODY_TOO_LARGE", limit=limit)
                if not message.get("more_body"):
                    body.seek(0)
                    return body
        except BaseException:
            body.close()
            raise

    def _is_signed_in(self, scope: MutableMapping[str, Any]) -> bool:
        """Return True if the headers of the request authenticate it."""
        close_old_connections()
        request, _ = self.create_request(scope, BytesIO())
        return request is not None and (
            is_signed_in(request) or is_run_signed_in(request) or is_directory_signed_in(request)
        )

    async def run(self, work: Callable[[], T]) -> T:
        """Return what `work` returns, run by a thread of the pool, whose names begin with THREAD_NAME_PREFIX. Raise
        what it raises."""
        try:
            return await asyncio.get_running_loop().run_in_executor(self._pool, work)
        finally:
            POOL_PROGRESS.finish()

    def _in_thread(self, request: ASGIRequest) -> HttpResponseBase:
        set_script_prefix(get_script_prefix(request.scope))
        signals.request_started.send(sender=type(self), scope=request.scope)
        response = self.get_response(request)
        response._handler_class = type(self)  # type: ignore[attr-defined]
        if isinstance(response, FileResponse):
            response.block_size = self.chunk_size
        if isinstance(response, StreamingHttpResponse):
            if not response.is_async:
                response.streaming_content = self._pieces(cast(Iterator[bytes], response.streaming_content))
            close_old_connections()
        else:
            response.close()  # its content is in memory; this ends the request for the database and the cache
        return response

    async def _pieces(self, content: Iterator[bytes]) -> AsyncIterator[bytes]:
        """Yield a sync body, read piece by piece in the pool; Django would read all of it before sending the first
        byte."""
        read = sync_to_async(lambda: next(content, None), thread_sensitive=False, executor=self._pool)
        while (piece := await read()) is not None:
            yield piece

    async def _stream(self, response: HttpResponseBase, receive: Receive, send: Send, context: Context) -> None:
        """Send a streaming body until it ends or the client disconnects. `context`: the request's, which has its id."""
        sending = asyncio.create_task(self.send_response(response, send), context=context)
        leaving = asyncio.ensure_future(receive())  # the body has been read, so what comes next is the disconnect
        try:
            await asyncio.wait([sending, leaving], return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (sending, leaving):
                task.cancel()
            results = await asyncio.gather(sending, leaving, return_exceptions=True)
            await sync_to_async(response.close)()
        if isinstance(results[0], Exception):
            raise results[0]


def _is_health_check(scope: MutableMapping[str, Any]) -> bool:
    """Return True if the request is a health check, which the event loop answers, however busy the threads are. One to
    a host name that is not allowed is left to Django, which refuses it."""
    if scope["path"] != HEALTH_PATH or scope["method"] not in ("GET", "HEAD"):
        return False
    name, _ = split_domain_port(get_header(scope, b"host"))
    return bool(name) and validate_host(name, settings.ALLOWED_HOSTS)


os.environ.setdefault("DJANGO_SETTINGS_MODULE", "server.settings")
django.setup(set_prefix=False)

from apps.accounts.api.authentication import is_signed_in  # noqa: E402
from apps.common import bounds, request_id  # noqa: E402
from apps.common.asgi import ErrorResponseMiddleware, get_header, send_error, send_response  # noqa: E402
from apps.common.errors import ApiError  # noqa: E402
from apps.directory.api.authentication import is_directory_signed_in  # noqa: E402
from apps.mcp.asgi import LazyMcpMiddleware  # noqa: E402
from apps.mlflow.api.authentication import is_run_signed_in  # noqa: E402
from apps.proxy.asgi import LazyProxyMiddleware  # noqa: E402
from apps.workers.heartbeat.channels import AgentChannelsApp as AgentChannels  # noqa: E402
from apps.workers.heartbeat.endpoint import HeartbeatEndpoint  # noqa: E402  (its models need the apps)

handler = DjangoHandler()
application = ErrorResponseMiddleware(
    LazyProxyMiddleware(LazyMcpMiddleware(AgentChannels(HeartbeatEndpoint(handler)), handler))
)
