"""Finds TCP ports of this host on which other processes listen: the platform starts no rank 0 on one of them."""

import os
from collections.abc import Collection
from contextlib import suppress
from typing import Any

from fermi.runner import ports

MIN_PORT = 1024
"""No rendezvous port is below."""
MAX_PORTS = 256


class BusyPorts:
    """Looks the processes up only when the ports or our own ranks have changed, because that reads all processes."""

    def __init__(self) -> None:
        self._seen: Any = None
        self._told: list[dict[str, Any]] = []

    def look(self, own: Collection[int]) -> list[dict[str, Any]]:
        """Return the ports with their holders. `own`: the sessions of this host's ranks, whose ports the platform
        knows."""
        found = {port: names for port, names in ports.list_listening_ports().items() if port >= MIN_PORT}
        if (seen := (found, set(own))) != self._seen:
            self._seen = seen
            who = ports.find_holders(found)
            foreign = [port for port in sorted(found) if port not in who or _read_session(who[port][0]) not in own]
            self._told = [
                {"port": port, "holder": who[port][1] if port in who else None} for port in foreign[:MAX_PORTS]
            ]
        return self._told


def _read_session(pid: int) -> int:
    with suppress(OSError):
        return os.getsid(pid)
    return 0
