"""A Unix socket by which processes of one user, in one container, talk: lines of JSON. Standard library only, Python
3.9 or later.

It lies in a folder of its user's alone, which may be longer than the address of a socket (108 bytes, unix(7)): it is
reached through a descriptor of the folder. Its user's home may be shared with other containers, so both sides ask the
kernel who is at the other end: the same user, and a process that is seen from here (`SO_PEERCRED`; pid 0 otherwise).
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import struct
from collections.abc import Mapping
from typing import Any

from fermi.runner.files import read_json
from fermi.runner.processes import boot_id, start_time

NAME = "socket"
PROCESS = "fermi-standby"
"""What a process that stands by is called (`standby.py`)."""
IMPORTING, STANDING, UNUSABLE = "importing", "standing", "unusable"
MAX_LINE = 4 << 20
"""Bytes: an order has the environment variables and the secrets of an attempt."""
PIECE = 1 << 16
_CREDENTIALS = struct.Struct("3i")


def read_state(folder: str) -> dict[str, Any] | None:
    """Returns what a process that stands by there, or could not, says of itself; None where there is none."""
    said = read_json(os.path.join(folder, "state.json"))
    if not isinstance(said, dict) or said.get("boot_id") != boot_id():
        return None
    lives = isinstance(said.get("pid"), int) and start_time(said["pid"]) == said.get("start_time")
    return said if lives or said.get("state") == UNUSABLE else None


def listen(folder: str) -> socket.socket:
    """Returns the listening socket. Raises OSError where the folder's file system has none."""
    door = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    before = os.umask(0o177)
    try:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(os.path.join(folder, NAME))
        _through(folder, door.bind)
        door.listen(16)
    except OSError:
        door.close()
        raise
    finally:
        os.umask(before)
    return door


def connect(folder: str, seconds: float) -> socket.socket:
    """Raises OSError where nobody listens."""
    stream = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    stream.settimeout(seconds)
    try:
        _through(folder, stream.connect)
    except OSError:
        stream.close()
        raise
    return stream


def peer(stream: socket.socket) -> int:
    """Returns the pid of the process at the other end; 0 where that is another user's, or in another container."""
    said = stream.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    pid, uid, _ = _CREDENTIALS.unpack(said)
    return int(pid) if uid == os.getuid() else 0


def send(stream: socket.socket, said: Mapping[str, Any]) -> None:
    stream.sendall(json.dumps(said).encode() + b"\n")


def receive(stream: socket.socket) -> dict[str, Any]:
    """Raises OSError and ValueError."""
    line = bytearray()
    while not line.endswith(b"\n"):
        piece = stream.recv(PIECE)
        if not piece or len(line) > MAX_LINE:
            raise ValueError("no line")
        line += piece
    said = json.loads(line)
    if not isinstance(said, dict):
        raise ValueError("no object")
    return said


def _through(folder: str, reach: Any) -> None:
    descriptor = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        reach(f"/proc/self/fd/{descriptor}/{NAME}")
    finally:
        os.close(descriptor)
