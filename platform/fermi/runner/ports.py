"""The default rendezvous port, and which process listens on a TCP port of this machine. Standard library only, Python
3.9 or later."""

from __future__ import annotations

import contextlib
import os
import socket

DEFAULT_MASTER_PORT = 29500
"""Where rank 0 listens by default, as with torchrun."""
LISTEN_STATE = "0A"


def is_port_free(port: int) -> bool:
    """Return True if a rank could listen on the port, on all addresses."""
    try:
        with socket.create_server(("", port)):
            return True
    except OSError:
        return False


def describe_holder(port: int) -> str:
    """Return `pid 4711 (python train.py)`; empty if no process listens or it belongs to another user."""
    return next((said for _, said in find_holders({port: list_listening_ports().get(port, set())}).values()), "")


def list_listening_ports() -> dict[int, set[str]]:
    """Return the ports on which a process listens, with their sockets."""
    found: dict[int, set[str]] = {}
    for row in _read_listening_rows():
        found.setdefault(int(row[1].rpartition(":")[2], 16), set()).add(f"socket:[{row[9]}]")
    return found


def find_holders(sockets: dict[int, set[str]]) -> dict[int, tuple[int, str]]:
    """Return by port a pid and `pid 4711 (python train.py)`, without processes of other users."""
    by_socket = {name: port for port, names in sockets.items() for name in names}
    found: dict[int, tuple[int, str]] = {}
    for pid in filter(str.isdigit, os.listdir("/proc") if by_socket else ()):
        with contextlib.suppress(OSError):  # it ended, or is another user's
            held = {by_socket.get(os.readlink(entry.path)) for entry in os.scandir(f"/proc/{pid}/fd")}
            for port in held - {None} - found.keys():
                with open(f"/proc/{pid}/cmdline", "rb") as file:
                    words = file.read().replace(b"\0", b" ").decode(errors="replace").strip()
                found[port] = int(pid), f"pid {pid} ({words[:80]})"  # type: ignore[index]
    return found


def _read_listening_rows() -> list[list[str]]:
    rows = []
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        with contextlib.suppress(OSError), open(table, encoding="utf-8") as file:
            rows += [line.split() for line in file.readlines()[1:]]
    return [row for row in rows if row[3] == LISTEN_STATE]
