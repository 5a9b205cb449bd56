"""Middleware that answers at /mcp. The MCP SDK is imported for the first such request only: a web process that serves
no agents starts faster and is smaller without it."""

import asyncio

from apps.common.asgi import App, Receive, Scope, Send

MCP_PATH = "/mcp"


class LazyMcpMiddleware:
    """ASGI middleware that hands requests for /mcp to the endpoint, and others on to `onward`. `handler`: what answers
    the API's operations."""

    def __init__(self, onward: App, handler: App) -> None:
        self._onward, self._handler = onward, handler
        self._endpoint: App | None = None
        self._loading = asyncio.Lock()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"].rstrip("/") == MCP_PATH:
            await (await self._get_endpoint())(scope, receive, send)
        else:
            await self._onward(scope, receive, send)

    async def _get_endpoint(self) -> App:
        async with self._loading:
            if self._endpoint is None:
                self._endpoint = await asyncio.to_thread(_load_endpoint, self._handler)
        return self._endpoint


def _load_endpoint(handler: App) -> App:
    from apps.mcp.endpoint import McpEndpoint

    return McpEndpoint(handler)
