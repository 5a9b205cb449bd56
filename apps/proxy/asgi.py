"""Middleware in front of Django that routes requests for environments and for channels.

What these need (an HTTP client, WebSockets) is imported for the first such request only, so that a web process starts
sooner.
"""

import asyncio
from collections.abc import Callable

from django.conf import settings

from apps.common import asgi
from apps.common.asgi import App, Receive, Scope, Send
from apps.proxy import hostnames


class LazyProxyMiddleware:
    """ASGI middleware that hands a request to the environment proxy, to the channels, or on to `onward` (Django)."""

    def __init__(self, onward: App) -> None:
        self._onward = onward
        self._apps: dict[Callable[[], Callable[[App], App]], App] = {}
        self._loading = asyncio.Lock()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] in ("http", "websocket") and hostnames.parse_host(
            asgi.get_header(scope, b"host"), settings.DOOR_HOST
        ):
            app = await self._get_app(_load_proxy)
        elif scope["type"] == "websocket" and scope["path"].endswith("/channel"):
            app = await self._get_app(_load_channels)
        else:
            app = self._onward
        await app(scope, receive, send)

    async def _get_app(self, load: Callable[[], Callable[[App], App]]) -> App:
        """Return the process's one instance of what `load` imports: it counts open connections."""
        async with self._loading:
            if load not in self._apps:
                make = await asyncio.to_thread(load)
                self._apps[load] = make(self._onward)
        return self._apps[load]


def _load_proxy() -> Callable[[App], App]:
    from apps.proxy.http_proxy import EnvironmentProxy

    return EnvironmentProxy


def _load_channels() -> Callable[[App], App]:
    from apps.proxy.channels import ChannelsApp

    return ChannelsApp
