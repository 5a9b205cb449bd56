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
    inodes = {row[9] for row in _listening() if int(row[1].rpartition(":")[2], 16) == port}
    if not inodes:
        return ""
    wanted = {f"socket:[{inode}]" for inode in inodes}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            if any(os.readlink(entry.path) in wanted for entry in os.scandir(f"/proc/{pid}/fd")):
                with open(f"/proc/{pid}/cmdline", "rb") as file:
                    words = file.read().replace(b"\0", b" ").decode(errors="replace").strip()
                return f"pid {pid} ({words[:80]})"
    return ""


def _listening() -> list[list[str]]:
    rows = []
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        with contextlib.suppress(OSError), open(table, encoding="utf-8") as file:
            rows += [line.split() for line in file.readlines()[1:]]
    return [row for row in rows if row[3] == LISTEN]
