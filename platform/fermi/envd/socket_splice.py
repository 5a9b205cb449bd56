"""Copies bytes from one socket to another through one buffer.

asyncio's streams make an object of each piece, append it to another, cut it off there, and keep what a slow side did
not take: of a large file each byte is copied six times, two of them by the kernel. Here it is those two.
"""

from __future__ import annotations

import asyncio
import select
import socket
from collections.abc import Callable

MIN_BUFFER_BYTES, MAX_BUFFER_BYTES = 1 << 14, 1 << 18
"""Sizes of a buffer: most connections carry little, and each direction has its own buffer."""


class TargetClosedError(ConnectionError):
    """The target accepts no more data."""


async def splice_sockets(
    source: socket.socket, target: socket.socket, *, count: int | None = None, on_data: Callable[[], None] | None = None
) -> int:
    """Copy `count` bytes, or all until the source's end, and return how many. Neither socket may block, nor may a
    transport read from the source or write to the target meanwhile. `on_data` is called for each piece. Raises
    TargetClosedError, and OSError if the source breaks off."""
    loop = asyncio.get_running_loop()
    buffer = memoryview(bytearray(MIN_BUFFER_BYTES if count is None else MAX_BUFFER_BYTES))
    done = turn = 0
    while count is None or done < count:
        room = buffer if count is None else buffer[: count - done]
        try:
            got = source.recv_into(room)
        except BlockingIOError:
            await asyncio.sleep(0)
            got, turn = await loop.sock_recv_into(source, room), 0
        if not got:
            break
        try:
            sent = _send(target, buffer[:got])
            if sent < got:
                await loop.sock_sendall(target, buffer[sent:got])
                turn = 0
        except OSError as error:
            raise TargetClosedError(error.errno, error.strerror) from error
        done += got
        turn += got
        if on_data:
            on_data()
        if got == len(buffer) < MAX_BUFFER_BYTES:
            buffer = memoryview(bytearray(2 * got))
        if turn >= MAX_BUFFER_BYTES:  # a source that always has more leaves others their turn
            await asyncio.sleep(0)
            turn = 0
    return done


def splice_sockets_blocking(source: socket.socket, target: socket.socket, count: int) -> int:
    """Copy `count` bytes as `splice_sockets` does, in a thread of its own. Returns early when either socket is shut
    down."""
    buffer, done = memoryview(bytearray(MAX_BUFFER_BYTES)), 0
    readable, writable = select.poll(), select.poll()
    readable.register(source, select.POLLIN)
    writable.register(target, select.POLLOUT)
    while done < count:
        try:
            got = source.recv_into(buffer[: count - done])
        except BlockingIOError:
            readable.poll()
            continue
        if not got:
            break
        left = buffer[:got]
        try:
            while left := left[_send(target, left) :]:
                writable.poll()
        except OSError as error:
            raise TargetClosedError(error.errno, error.strerror) from error
        done += got
    return done


def _send(target: socket.socket, data: memoryview) -> int:
    try:
        return target.send(data)
    except BlockingIOError:
        return 0
