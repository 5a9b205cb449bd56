"""A Unix socket between processes of one user in one container, with one JSON object per line. Standard library only,
Python 3.9 or later.

It is in a folder that only its user can access. The folder's path may be longer than a socket address (108 bytes,
unix(7)), so it is reached through a descriptor of the folder. The user's home may be shared with other containers, so
both sides ask the kernel for the peer: it must be the same user and a process visible here (`SO_PEERCRED`; pid 0
otherwise).
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
from fermi.runner.processes import read_boot_id, read_start_time

SOCKET_NAME = "socket"
PROCESS_NAME = "fermi-standby"
"""The name of a standby process (`standby.py`)."""
IMPORTING, STANDING_BY, UNUSABLE = "importing", "standing", "unusable"
OTHER_PYTHON = "the process that stands by has another Python than"
"""Why ranks import the training stack themselves, for their log; an interpreter follows."""
MAX_LINE_BYTES = 4 << 20
"""Bytes: an order has the environment variables and the secrets of an attempt."""
CHUNK_BYTES = 1 << 16
_CREDENTIALS = struct.Struct("3i")


def read_state(folder: str) -> dict[str, Any] | None:
    """Return the state that the standby process of a folder has written, also if it could not start; None if there is
    none."""
    said = read_json(os.path.join(folder, "state.json"))
    if not isinstance(said, dict) or said.get("boot_id") != read_boot_id():
        return None
    lives = isinstance(said.get("pid"), int) and read_start_time(said["pid"]) == said.get("start_time")
    return said if lives or said.get("state") == UNUSABLE else None


def open_socket(folder: str) -> socket.socket:
    """Return a listening socket. Raises OSError if the file system of the folder supports none."""
    door = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    before = os.umask(0o177)
    try:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(os.path.join(folder, SOCKET_NAME))
        _call_with_path(folder, door.bind)
        door.listen(16)
    except OSError:
        door.close()
        raise
    finally:
        os.umask(before)
    return door


def connect_socket(folder: str, seconds: float) -> socket.socket:
    """Return a connected socket with this timeout. Raises OSError if no process listens."""
    stream = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    stream.settimeout(seconds)
    try:
        _call_with_path(folder, stream.connect)
    except OSError:
        stream.close()
        raise
    return stream


def read_peer_pid(stream: socket.socket) -> int:
    """Return the pid of the process at the other end, or 0 if it belongs to another user or container."""
    said = stream.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    pid, uid, _ = _CREDENTIALS.unpack(said)
    return int(pid) if uid == os.getuid() else 0


def send_message(stream: socket.socket, message: Mapping[str, Any]) -> None:
    """Send one message as a line. Raises OSError."""
    stream.sendall(json.dumps(message).encode() + b"\n")


def receive_message(stream: socket.socket) -> dict[str, Any]:
    """Return the next message. Raises OSError, and ValueError for something else than one JSON object of at most
    MAX_LINE_BYTES."""
    line = bytearray()
    while not line.endswith(b"\n"):
        piece = stream.recv(CHUNK_BYTES)
        if not piece or len(line) > MAX_LINE_BYTES:
            raise ValueError("no line")
        line += piece
    said = json.loads(line)
    if not isinstance(said, dict):
        raise ValueError("no object")
    return said


def _call_with_path(folder: str, reach: Any) -> None:
    descriptor = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        reach(f"/proc/self/fd/{descriptor}/{SOCKET_NAME}")
    finally:
        os.close(descriptor)
