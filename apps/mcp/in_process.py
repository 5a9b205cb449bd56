"""Calls the API's operations within the web process, as if the requests had come over the network.

Each call goes through Django's handler and its thread pool with the caller's token: scopes, roles, purse, validation,
rate limits and the audit trail are those of the API. No service is called directly.
"""

import asyncio
import json
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any
from urllib.parse import urlencode

from apps.accounts.scopes import TokenRights
from apps.common import request_id
from apps.common.asgi import App, ErrorResponseMiddleware, Scope, get_header
from fermi.mcp.caller import API_PREFIX, ApiProblemError, Download, cut_range, select_params

MAX_ANSWER_BYTES = 4 << 20
"""Of an answer of the API that a tool reads."""

PASSED_HEADERS = (b"authorization", b"accept-language", b"host", b"user-agent")


class InProcessCaller:
    """Calls the API with the token, the language and the client's address of a request to /mcp."""

    def __init__(self, handler: App, scope: Scope, rights: TokenRights) -> None:
        self._handler = ErrorResponseMiddleware(handler)
        self._scope = scope
        self._rights = rights
        self._request_id = request_id.set_request_id(get_header(scope, b"x-request-id"))

    def has_scope(self, scope: str) -> bool:
        """Return False if the token may not call operations of the scope."""
        return self._rights.has_scope(scope)

    async def call(
        self,
        method: str,
        path: str,
        query: Mapping[str, Any] | None = None,
        body: Any = None,
        headers: Mapping[str, str] | None = None,
    ) -> Any:
        """Return `data` of the answer. Raise ApiProblemError."""
        sent = b"" if body is None else json.dumps(body).encode()
        answer = await self._request(method, path, query, sent, headers or {}, MAX_ANSWER_BYTES)
        try:
            found = json.loads(answer.body) if answer.complete else None
        except ValueError:
            found = None
        if answer.status >= HTTPStatus.BAD_REQUEST or not isinstance(found, dict) or "data" not in found:
            raise ApiProblemError.from_envelope(answer.status, found)
        return found["data"]

    async def download(self, path: str, query: Mapping[str, Any], offset: int, count: int) -> Download:
        """Return at most `count` bytes of a file from `offset` on. Raise ApiProblemError."""
        headers = {"Range": f"bytes={offset}-{offset + count - 1}"}
        answer = await self._request("GET", path, query, b"", headers, offset + count)
        if answer.status >= HTTPStatus.BAD_REQUEST and answer.status != HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
            try:
                found = json.loads(answer.body)
            except ValueError:
                found = None
            raise ApiProblemError.from_envelope(answer.status, found)
        return cut_range(answer.status, answer.content_range, bytes(answer.body), offset, count)

    async def _request(
        self,
        method: str,
        path: str,
        query: Mapping[str, Any] | None,
        body: bytes,
        headers: Mapping[str, str],
        max_bytes: int,
    ) -> "_Answer":
        full = API_PREFIX + path
        passed = [(name, value) for name, value in self._scope["headers"] if name in PASSED_HEADERS]
        scope = {
            "type": "http",
            "asgi": self._scope["asgi"],
            "http_version": "1.1",
            "method": method,
            "scheme": self._scope.get("scheme", "http"),
            "path": full,
            "raw_path": full.encode(),
            "query_string": urlencode(select_params(query)).encode(),
            "root_path": self._scope.get("root_path", ""),
            "headers": [
                *passed,
                (b"accept", b"application/json"),
                (b"x-request-id", self._request_id.encode()),
                *([(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))] if body else []),
                *((name.lower().encode(), value.encode()) for name, value in headers.items()),
            ],
            "client": self._scope.get("client"),
            "server": self._scope.get("server"),
        }
        answer = _Answer(body, max_bytes)
        await self._handler(scope, answer.receive, answer.send)
        return answer


class _Answer:
    """Receives and sends in place of a connection. A body that is longer than `max_bytes` is cut, and the sender told
    that its client has disconnected."""

    def __init__(self, request_body: bytes, max_bytes: int) -> None:
        self.status = 0
        self.content_range = ""
        self.body = bytearray()
        self.complete = False
        self._max_bytes = max_bytes
        self._sent: list[bytes] = [request_body]
        self._over = asyncio.Event()

    async def receive(self) -> Mapping[str, Any]:
        if self._sent:
            return {"type": "http.request", "body": self._sent.pop(), "more_body": False}
        await self._over.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Mapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.content_range = get_header(message, b"content-range")
            return
        self.body += message.get("body", b"")
        if not message.get("more_body"):
            self.complete = len(self.body) <= self._max_bytes
            self._over.set()
        elif len(self.body) > self._max_bytes:
            self._over.set()
