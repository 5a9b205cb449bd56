"""Web processes: one socket that the supervisor listens on, and as many processes as it takes to answer.

The socket outlives the processes. While one is started again, connections wait for it or are taken by another; none is
refused. FERMI_WEB says how many there are. `auto`, the default: one, and one more whenever those that there are have
been busy for a while, up to one for each core and MOST in all. An idle one would take some 130 MiB for nothing. They
stay: who was busy once will be again, and to end one would cut its streams.
"""

import os
import socket
import sys
from collections.abc import Mapping
from pathlib import Path

from server.up import checks
from server.up.listen_address import Address

MOST = 4
BACKLOG = 2048  # connections that wait to be taken
BUSY = 0.7  # of a core, by each of them
TICKS = os.sysconf("SC_CLK_TCK")


def listen(address: Address) -> socket.socket:
    """Raises CannotStart."""
    return checks.listening(address.host, address.port, BACKLOG)


def command(shared: socket.socket) -> list[str | Path]:
    """Of a process that inherits the socket."""
    return [sys.executable, "-m", "server.web", f"fd:{shared.fileno()}"]


def metrics(number: int) -> dict[str, str]:
    """The port of each process's own `/metrics`, where one is asked for: one after the other."""
    port = os.environ.get("FERMI_METRICS_PORT", "")
    return {"FERMI_METRICS_PORT": str(int(port) + number - 1)} if port.isdecimal() else {}


def cores() -> int:
    """That this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class Count:
    """How many there are to be: of a fixed number all at once, else by what they do."""

    def __init__(self, wish: int | None) -> None:
        """None: `auto`."""
        self.at_once = wish or 1
        self.most = wish or min(cores(), MOST)
        self._at = 0.0
        self._used: Mapping[int, float] = {}

    def wanted(self, at: float, used: Mapping[int, float]) -> int:
        """One more than run now, if all of them were busy since this was asked last. `used`: of each process, the
        seconds of a core so far."""
        passed, before = at - self._at, self._used
        self._at, self._used = at, used
        busy = all(pid in before and seconds - before[pid] > BUSY * passed for pid, seconds in used.items())
        return min(len(used) + busy, self.most)


def used(pid: int) -> float:
    """Seconds of a core so far; where the system does not tell, none."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / TICKS
