"""Calls the API over HTTP with the client's connections, for `fermi mcp`."""

from collections.abc import Collection, Mapping
from typing import Any

import anyio
import httpx

from fermi.client.config import Endpoint
from fermi.client.errors import UnreachableError
from fermi.mcp.caller import API_PREFIX, ApiProblemError, Download, cut_range, select_params

TIMEOUT_SECONDS = 60.0


class HttpCaller:
    """Calls the platform at an address with a token. `scopes`: the token's; None: all."""

    def __init__(self, endpoint: Endpoint, language: str, scopes: Collection[str] | None = None) -> None:
        headers = {"Accept-Language": language, "User-Agent": "fermi-mcp"}
        if endpoint.token:
            headers["Authorization"] = f"Bearer {endpoint.token}"
        self._scopes = scopes
        try:
            self._http = httpx.AsyncClient(base_url=endpoint.url, headers=headers, timeout=TIMEOUT_SECONDS)
        except (httpx.InvalidURL, ValueError) as error:
            raise UnreachableError(f"{endpoint.url} is not an address: {error}", code="UNREACHABLE") from error

    def has_scope(self, scope: str) -> bool:
        """Return False if the token may not call operations of the scope."""
        if self._scopes is None:
            return True
        resource, _, verb = scope.partition(":")
        return scope in self._scopes or (verb == "read" and f"{resource}:write" in self._scopes)

    async def call(
        self,
        method: str,
        path: str,
        query: Mapping[str, Any] | None = None,
        body: Any = None,
        headers: Mapping[str, str] | None = None,
    ) -> Any:
        """Return `data` of the answer. Raise ApiProblemError."""
        request: dict[str, Any] = {"params": select_params(query), "headers": dict(headers or {})}
        if body is not None:
            request["json"] = body
        response = await self._send(method, path, **request)
        try:
            found = response.json()
        except ValueError:
            found = None
        if response.status_code >= 400 or not isinstance(found, dict) or "data" not in found:
            raise ApiProblemError.from_envelope(response.status_code, found)
        return found["data"]

    async def download(self, path: str, query: Mapping[str, Any], offset: int, count: int) -> Download:
        """Return at most `count` bytes of a file from `offset` on. Raise ApiProblemError."""
        request = self._http.build_request(
            "GET", API_PREFIX + path, params=select_params(query),
            headers={"Range": f"bytes={offset}-{offset + count - 1}"},
        )  # fmt: skip
        try:
            response = await self._http.send(request, stream=True)
            try:
                if response.status_code >= 400 and response.status_code != 416:
                    await response.aread()
                    raise ApiProblemError.from_envelope(response.status_code, _parse(response))
                content = b""
                async for piece in response.aiter_bytes():
                    content += piece
                    if len(content) >= offset + count:
                        break
            finally:
                await response.aclose()
        except httpx.HTTPError as error:
            raise _describe_failure(error) from error
        return cut_range(response.status_code, response.headers.get("content-range", ""), content, offset, count)

    async def _send(self, method: str, path: str, **request: Any) -> httpx.Response:
        """Return the response; a request that did not reach the platform is sent once more."""
        for again in (True, False):
            try:
                return await self._http.request(method, API_PREFIX + path, **request)
            except httpx.HTTPError as error:
                if not (again and isinstance(error, httpx.ConnectError)):
                    raise _describe_failure(error) from error
                await anyio.sleep(1)
        raise AssertionError("unreachable")


def _parse(response: httpx.Response) -> Any:
    try:
        return response.json()
    except ValueError:
        return None


def _describe_failure(error: httpx.HTTPError) -> ApiProblemError:
    return ApiProblemError(0, "UNREACHABLE", str(error) or type(error).__name__)
