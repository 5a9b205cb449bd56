"""Bytes between a caller and something that listens inside, until both sides have no more."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable
from typing import TypeAlias

AT_ONCE = 1 << 18
LOOPBACK = ("127.0.0.1", "::1")

Target: TypeAlias = int | str
"""A port on loopback, or a Unix socket's path (see `in_folder`)."""


async def reach(target: Target) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Raises OSError when nobody listens."""
    if isinstance(target, str):
        return await asyncio.open_unix_connection(target, limit=AT_ONCE)
    for host in LOOPBACK[:-1]:
        with contextlib.suppress(OSError):
            return await asyncio.open_connection(host, target, limit=AT_ONCE)
    return await asyncio.open_connection(LOOPBACK[-1], target, limit=AT_ONCE)


def in_folder(folder: int, name: str) -> str:
    """A socket's path by its folder's descriptor: whatever the folder's own path is, this one is not too long."""
    return f"/proc/{os.getpid()}/fd/{folder}/{name}"


async def join(
    one: tuple[asyncio.StreamReader, asyncio.StreamWriter],
    other: tuple[asyncio.StreamReader, asyncio.StreamWriter],
    passed: Callable[[], None],
) -> None:
    """Both are closed in the end. The end of one side's is passed on; a broken side ends both."""
    flows = [asyncio.create_task(_flow(one[0], other[1], passed)), asyncio.create_task(_flow(other[0], one[1], passed))]
    try:
        await asyncio.wait(flows, return_when=asyncio.FIRST_EXCEPTION)
    finally:
        for flow in flows:
            flow.cancel()
        await asyncio.gather(*flows, return_exceptions=True)
        for _, writer in (one, other):
            writer.close()


async def _flow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, passed: Callable[[], None]) -> None:
    """Raises OSError where a side has broken off."""
    while data := await reader.read(AT_ONCE):
        passed()
        writer.write(data)
        await writer.drain()
    if writer.can_write_eof():
        writer.write_eof()
