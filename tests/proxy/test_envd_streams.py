"""A stream to envd: bytes that its reader does not take wait at the other end."""

import asyncio
import contextlib
import socket

from apps.proxy.envd_streams import MAX_BUFFERED_BYTES, EnvdStream

PIECE = bytes(1 << 16)
FAR_MORE = 16 * MAX_BUFFERED_BYTES


async def give(source: socket.socket) -> int:
    """As much as is taken while nobody reads."""
    loop, given = asyncio.get_running_loop(), 0
    with contextlib.suppress(TimeoutError):
        while given < FAR_MORE:
            await asyncio.wait_for(loop.sock_sendall(source, PIECE), 1)
            given += len(PIECE)
    return given


def test_a_stream_paused_and_resumed_buffers_no_more_than_before() -> None:
    async def within() -> int:
        source, ours = socket.socketpair()
        source.setblocking(False)
        stream = await EnvdStream.from_socket(ours)
        assert await give(source) < FAR_MORE, "its reader is slow"
        _pieces, taken = stream.take_over()
        with taken, contextlib.suppress(BlockingIOError):
            while taken.recv(1 << 20):
                pass
        stream.resume_reading()
        given = await give(source)
        stream.close()
        source.close()
        return given

    assert asyncio.run(within()) < FAR_MORE
