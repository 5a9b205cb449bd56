"""The way to doors and channels: what they need (an HTTP client, WebSockets) a web process imports for the first of
them only, so that it is up the sooner."""

import asyncio
from importlib import import_module

from django.conf import settings

from apps.common import asgi
from apps.common.asgi import App, Receive, Scope, Send
from apps.proxy import hostnames

DOORS = ("apps.proxy.http_proxy", "Doors")
CHANNELS = ("apps.proxy.channels", "Channels")


class Front:
    def __init__(self, onward: App) -> None:
        self._onward = onward
        self._opened: dict[tuple[str, str], App] = {}
        self._opening = asyncio.Lock()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] in ("http", "websocket") and hostnames.read(asgi.header(scope, b"host"), settings.DOOR_HOST):
            app = await self._open(DOORS)
        elif scope["type"] == "websocket" and scope["path"].endswith("/channel"):
            app = await self._open(CHANNELS)
        else:
            app = self._onward
        await app(scope, receive, send)

    async def _open(self, way: tuple[str, str]) -> App:
        """One of each a process: it counts what is open."""
        async with self._opening:
            if way not in self._opened:
                module = await asyncio.to_thread(import_module, way[0])
                self._opened[way] = getattr(module, way[1])(self._onward)
        return self._opened[way]
