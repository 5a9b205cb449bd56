"""HTTP as uvicorn serves it."""

import asyncio
import contextlib
import socket
from concurrent.futures import ThreadPoolExecutor
from typing import cast

import h11

from apps.common.asgi import POUR, ReaderGone
from fermi.keeper.pouring import TargetGone, pour, pour_here
from server.short import ShortWay

POURING = 8  # bodies with a thread of their own; more of them take turns in the event loop


class _Counted:
    """Of bytes that h11 does not see, how many (https://h11.readthedocs.io, "sendfile()")."""

    def __init__(self, count: int) -> None:
        self._count = count

    def __len__(self) -> int:
        return self._count


class Http(ShortWay):
    """With a way around its buffers for large bodies, and a short one for requests that come by the thousand."""

    _threads = ThreadPoolExecutor(POURING, "pour")
    _busy = 0

    def handle_events(self) -> None:
        before = self.scope
        super().handle_events()
        if self.scope is not before and self.scheme == "http":  # TLS has the transport encrypt
            cast(dict[str, object], self.scope)["extensions"] = {POUR: self._pour}

    async def _pour(self, source: socket.socket, count: int) -> None:
        self.conn.send_with_data_passthrough(h11.Data(data=cast(bytes, _Counted(count))))
        self.transport.set_write_buffer_limits(0)
        try:
            await self.flow.drain()
        finally:
            self.transport.set_write_buffer_limits()
        with self.transport.get_extra_info("socket").dup() as target:
            try:
                sent = await self._poured(source, target, count)
            except TargetGone as error:
                raise ReaderGone(error.errno, error.strerror) from error
        if sent < count:
            raise EOFError("the body ended early")

    @classmethod
    async def _poured(cls, source: socket.socket, target: socket.socket, count: int) -> int:
        """Small pieces that one side waits for take a thread a fraction of what they take the event loop."""
        if cls._busy >= POURING:
            return await pour(source, target, count=count)
        cls._busy += 1
        pouring = asyncio.get_running_loop().run_in_executor(cls._threads, pour_here, source, target, count)
        try:
            return await asyncio.shield(pouring)
        except asyncio.CancelledError:
            for side in (source, target):  # neither is closed while the thread knows its number
                with contextlib.suppress(OSError):
                    side.shutdown(socket.SHUT_RDWR)
            await asyncio.wait([pouring])
            pouring.exception()  # it was made to fail
            raise
        finally:
            cls._busy -= 1
