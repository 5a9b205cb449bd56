"""Makes ranks connect to PyTorch's store as soon as it listens.

A rank that connects before rank 0's store listens is refused, and then PyTorch waits for half a second or more before
its next attempt, whether it was 20 ms too early or 500 (torch 2.13; the waits were introduced by
pytorch/pytorch#129261). Ranks of a job start together, so it is a matter of chance which is first. Here a rank tries
every few milliseconds. What takes longer, or is not just a refusal, is left to PyTorch, which reports the problem.
"""

from __future__ import annotations

import functools
import socket
import time
from datetime import timedelta

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType
    from typing import Any

    from .rank import ProgressWriter

MAX_WAIT_SECONDS = 20.0  # seconds, or half of what PyTorch is given
MIN_PAUSE_SECONDS, MAX_PAUSE_SECONDS = 0.005, 0.1  # seconds between two attempts: a tenth of those that have passed


def soon(pulse: ProgressWriter, rendezvous: ModuleType) -> None:
    """Wrap the function that creates the store."""
    function = rendezvous._create_c10d_store

    @functools.wraps(function)
    def create(hostname: str, port: int, rank: int, *args: Any, **kwargs: Any) -> Any:
        world_size = kwargs.get("world_size", args[0] if args else None)
        pulse.joins(rank, world_size)
        pulse.meets(world_size)
        if rank:
            given = [one.total_seconds() / 2 for one in (*args, *kwargs.values()) if isinstance(one, timedelta)]
            wait_for_store(hostname, port, min([MAX_WAIT_SECONDS, *given]))
        return function(hostname, port, rank, *args, **kwargs)

    rendezvous._create_c10d_store = create  # type: ignore[attr-defined]


def wait_for_store(host: str, port: int, patience: float) -> None:
    """Return once connections are no longer refused, something else is wrong, or `patience` seconds have passed."""
    began = time.monotonic()
    while _is_refused(host, port) and (passed := time.monotonic() - began) < patience:
        time.sleep(min(max(passed / 10, MIN_PAUSE_SECONDS), MAX_PAUSE_SECONDS))


def _is_refused(host: str, port: int) -> bool:
    try:
        with socket.create_connection((_encode_host(host), port), timeout=1) as there:  # type: ignore[arg-type]
            return there.getsockname() == there.getpeername()  # it has met itself, as a port for outgoing connections
    except ConnectionRefusedError:
        return True
    except Exception:
        return False


def _encode_host(host: str) -> str | bytes:
    """Return ASCII host names as bytes: for a str, Python imports the IDNA codec."""
    return host.encode() if host.isascii() else host
