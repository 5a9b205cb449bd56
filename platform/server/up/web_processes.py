"""Web processes: one socket that the supervisor listens on, and as many processes as needed to serve it.

The socket outlives the processes: while one is restarted, connections wait or are accepted by another; none is refused.
FERMI_WEB sets their number. `auto`, the default: one, and one more whenever all have been busy for a while, up to one
for each core and MAX_PROCESSES in all. An idle one would take some 130 MiB for nothing. They are never reduced: load
tends to come back, and ending one would break its streams.
"""

import os
import socket
import sys
from collections.abc import Mapping
from pathlib import Path

from server.up import checks
from server.up.listen_address import ListenAddress

MAX_PROCESSES = 4
BACKLOG = 2048  # connections that wait to be taken
BUSY_SHARE = 0.7  # of a core, by each of them
TICKS = os.sysconf("SC_CLK_TCK")


def open_socket(address: ListenAddress) -> socket.socket:
    """Return the listening socket. Raise StartupError."""
    return checks.open_listening_socket(address.host, address.port, BACKLOG)


def build_command(shared: socket.socket) -> list[str | Path]:
    """Return the command of a process that inherits the socket."""
    return [sys.executable, "-m", "server.web", f"fd:{shared.fileno()}"]


def build_metrics_variables(number: int) -> dict[str, str]:
    """Return the variable with the process's own `/metrics` port, where one is configured: consecutive ports."""
    port = os.environ.get("FERMI_METRICS_PORT", "")
    return {"FERMI_METRICS_PORT": str(int(port) + number - 1)} if port.isdecimal() else {}


def count_cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class ProcessCount:
    """Target number of processes: fixed, or growing with the load."""

    def __init__(self, wish: int | None) -> None:
        """`wish` None: `auto`."""
        self.at_once = wish or 1
        self.most = wish or min(count_cores(), MAX_PROCESSES)
        self._at = 0.0
        self._used: Mapping[int, float] = {}

    def compute_target(self, at: float, used: Mapping[int, float]) -> int:
        """Return one more than run now if all of them were busy since the last call. `used`: by process, the processor
        seconds so far."""
        passed, before = at - self._at, self._used
        self._at, self._used = at, used
        busy = all(pid in before and seconds - before[pid] > BUSY_SHARE * passed for pid, seconds in used.items())
        return min(len(used) + busy, self.most)


def read_cpu_seconds(pid: int) -> float:
    """Return the processor seconds of a process so far; 0 where the system cannot tell."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / TICKS
