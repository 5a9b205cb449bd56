"""Ranks come to PyTorch's store once it listens.

A rank that comes before rank 0's store listens is refused, and then PyTorch waits for half a second or more until it
comes again, whether it was 20 ms too early or 500 (torch 2.13; the waits were introduced by pytorch/pytorch#129261).
Ranks of a job begin together, so it is a matter of luck who is first. Here a rank asks every few milliseconds. What
takes longer, or is not just a refusal, is left to PyTorch, which says what is wrong.
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

    from fermi.probe.rank import Pulse

PATIENCE = 20.0  # seconds, or half of what PyTorch is given
SHORTEST, LONGEST = 0.005, 0.1  # seconds between two attempts: a tenth of those that have passed


def soon(pulse: Pulse, rendezvous: ModuleType) -> None:
    function = rendezvous._create_c10d_store

    @functools.wraps(function)
    def create(hostname: str, port: int, rank: int, *args: Any, **kwargs: Any) -> Any:
        pulse.meets(kwargs.get("world_size", args[0] if args else None))
        pulse.joins(rank)
        if rank:
            given = [one.total_seconds() / 2 for one in (*args, *kwargs.values()) if isinstance(one, timedelta)]
            wait(hostname, port, min([PATIENCE, *given]))
        return function(hostname, port, rank, *args, **kwargs)

    rendezvous._create_c10d_store = create  # type: ignore[attr-defined]


def wait(host: str, port: int, patience: float) -> None:
    """Until nobody there refuses a connection any longer, or something else is wrong."""
    began = time.monotonic()
    while _refused(host, port) and (passed := time.monotonic() - began) < patience:
        time.sleep(min(max(passed / 10, SHORTEST), LONGEST))


def _refused(host: str, port: int) -> bool:
    try:
        with socket.create_connection((_bytes(host), port), timeout=1) as there:  # type: ignore[arg-type]
            return there.getsockname() == there.getpeername()  # it has met itself, as a port for outgoing connections
    except ConnectionRefusedError:
        return True
    except Exception:
        return False


def _bytes(host: str) -> str | bytes:
    """Of a str, Python imports what spells out names of other languages."""
    return host.encode() if host.isascii() else host
