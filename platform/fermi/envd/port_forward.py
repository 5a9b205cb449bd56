"""Forwards bytes between a client and a listening process inside, until both sides have no more."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import Callable
from typing import TypeAlias

from fermi.envd.socket_splice import splice_sockets

LOOPBACK = ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1"))

Target: TypeAlias = int | str
"""A port on loopback, or a Unix socket's path (see `build_socket_path`)."""


async def connect_target(target: Target) -> socket.socket:
    """Return a connected socket. Raises OSError if no process listens."""
    if isinstance(target, str):
        return await _connect(socket.AF_UNIX, target)
    for family, host in LOOPBACK[:-1]:
        with contextlib.suppress(OSError):
            return await _connect(family, (host, target))
    family, host = LOOPBACK[-1]
    return await _connect(family, (host, target))


async def _connect(family: int, address: str | tuple[str, int]) -> socket.socket:
    sock = socket.socket(family, socket.SOCK_STREAM)
    sock.setblocking(False)
    try:
        if family != socket.AF_UNIX:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # as asyncio's own connections have it
        await asyncio.get_running_loop().sock_connect(sock, address)
    except BaseException:
        sock.close()
        raise
    return sock


def build_socket_path(folder: int, name: str) -> str:
    """Return a socket's path by its folder's descriptor, which is short enough however long the folder's own path
    is."""
    return f"/proc/{os.getpid()}/fd/{folder}/{name}"


async def join_streams(
    caller: tuple[asyncio.StreamReader, asyncio.StreamWriter], inside: socket.socket, on_data: Callable[[], None]
) -> None:
    """Forward both directions, and close both sides in the end. The end of one side's data is passed on; a broken side
    ends both."""
    reader, writer = caller
    outside: socket.socket = writer.get_extra_info("socket").dup()
    try:
        reader.feed_eof()  # what has come already is read without waiting for more
        early = await reader.read()
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        if early:
            await asyncio.get_running_loop().sock_sendall(inside, early)
        await _forward_both(outside, inside, on_data)
    finally:
        inside.close()
        outside.close()
        writer.close()


async def _forward_both(outside: socket.socket, inside: socket.socket, on_data: Callable[[], None]) -> None:
    flows = [
        asyncio.create_task(_forward(source, target, on_data))
        for source, target in ((outside, inside), (inside, outside))
    ]
    try:
        await asyncio.wait(flows, return_when=asyncio.FIRST_EXCEPTION)
    finally:
        for flow in flows:
            flow.cancel()
        await asyncio.gather(*flows, return_exceptions=True)


async def _forward(source: socket.socket, target: socket.socket, on_data: Callable[[], None]) -> None:
    """Forward one direction. Raises OSError if a side breaks off."""
    await splice_sockets(source, target, on_data=on_data)
    with contextlib.suppress(OSError):
        target.shutdown(socket.SHUT_WR)
