"""The rendezvous port, and who listens on a TCP port of this machine. Standard library only, Python 3.9 or later: what
runs on a node needs them as much as launch."""

from __future__ import annotations

import contextlib
import os
import socket

MASTER_PORT = 29500
"""Where rank 0 listens unless somebody says otherwise, as with torchrun."""
LISTEN = "0A"


def is_free(port: int) -> bool:
    """Whether a rank could listen on it, on all addresses."""
    try:
        with socket.create_server(("", port)):
            return True
    except OSError:
        return False


def holder(port: int) -> str:
    """`pid 4711 (python train.py)`; empty when nobody listens or the holder is somebody else's to see."""
    return next((said for _, said in holders({port: listened().get(port, set())}).values()), "")


def listened() -> dict[int, set[str]]:
    """The ports that are listened on, with their sockets."""
    found: dict[int, set[str]] = {}
    for row in _listening():
        found.setdefault(int(row[1].rpartition(":")[2], 16), set()).add(f"socket:[{row[9]}]")
    return found


def holders(wanted: dict[int, set[str]]) -> dict[int, tuple[int, str]]:
    """By port: a pid, and `pid 4711 (python train.py)`. Without those that are somebody else's to see."""
    by_socket = {name: port for port, names in wanted.items() for name in names}
    found: dict[int, tuple[int, str]] = {}
    for pid in filter(str.isdigit, os.listdir("/proc") if by_socket else ()):
        with contextlib.suppress(OSError):  # it ended, or is another user's
            held = {by_socket.get(os.readlink(entry.path)) for entry in os.scandir(f"/proc/{pid}/fd")}
            for port in held - {None} - found.keys():
                with open(f"/proc/{pid}/cmdline", "rb") as file:
                    words = file.read().replace(b"\0", b" ").decode(errors="replace").strip()
                found[port] = int(pid), f"pid {pid} ({words[:80]})"  # type: ignore[index]
    return found


def _listening() -> list[list[str]]:
    rows = []
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        with contextlib.suppress(OSError), open(table, encoding="utf-8") as file:
            rows += [line.split() for line in file.readlines()[1:]]
    return [row for row in rows if row[3] == LISTEN]
