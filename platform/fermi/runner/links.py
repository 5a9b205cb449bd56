"""Finds TCP connections of a rank with unacknowledged data, from /proc. Standard library only, Python 3.9 or later.

A peer that is cut off acknowledges nothing: sent data stays in the queue, and the kernel retransmits it, less and less
often. That is visible seconds after the cut, while a collective waits for half an hour.
"""

from __future__ import annotations

import contextlib
import os
import re
import socket
from collections.abc import Iterable
from typing import Any, NamedTuple

MAX_CONNECTIONS = 8
_RETRANSMITS = 1  # the timer that is set
_ESTABLISHED, _SYN_SENT = 1, 2


class TcpConnection(NamedTuple):
    """A TCP connection with waiting data. `unacked`: bytes that the peer has not acknowledged; `retries`:
    retransmissions in a row without an answer. A socket with `retries` 0 is merely full or busy."""

    inode: int
    peer: str
    port: int
    unacked: int
    retries: int


def list_waiting_connections(pids: Iterable[int]) -> list[TcpConnection]:
    """Return the connections of these processes, which share a network namespace, that have waiting data."""
    numbers = list(pids)
    inodes = {inode for pid in numbers for inode in _list_sockets(pid)}
    found = []
    for path in [f"/proc/{pid}/net/{name}" for pid in numbers[:1] for name in ("tcp", "tcp6")]:
        with contextlib.suppress(OSError, ValueError, IndexError), open(path, encoding="ascii") as file:
            found += [link for line in list(file)[1:] if (link := parse_connection(line)) and link.inode in inodes]
    return found


def parse_connection(line: str) -> TcpConnection | None:
    """Return the connection of a line of /proc/net/tcp or tcp6, or None if nothing waits."""
    fields = line.split()
    state, queued, timer = int(fields[3], 16), int(fields[4].split(":")[0], 16), int(fields[5].split(":")[0], 16)
    if state not in (_ESTABLISHED, _SYN_SENT) or not (queued or state == _SYN_SENT):
        return None
    peer, port = fields[2].split(":")
    retries = int(fields[6], 16) if timer == _RETRANSMITS else 0
    return TcpConnection(int(fields[9]), _parse_address(peer), int(port, 16), queued, retries)


def describe_silent_connections(
    links: Iterable[TcpConnection], since: dict[int, float], now: float
) -> list[dict[str, Any]]:
    """Return the connections whose peers do not answer, for a status. `since`: by inode, when each was first seen
    without answer; updated here."""
    silent = [link for link in links if link.retries]
    for gone in since.keys() - {link.inode for link in silent}:
        del since[gone]
    silent.sort(key=lambda link: since.setdefault(link.inode, now))
    return [
        {"peer": link.peer, "port": link.port, "unacked": link.unacked, "retries": link.retries,
         "seconds": round(max(now - since[link.inode], _compute_min_seconds(link.retries)), 1)} for link in
    silent[:MAX_CONNECTIONS] ]  # fmt: skip


def _compute_min_seconds(retries: int) -> float:
    """Return the seconds that so many retries take at least: the kernel waits 0.2 s at first, and twice as long each
    time."""
    return 0.2 * (2 ** min(retries, 9) - 1)


def _parse_address(text: str) -> str:
    """Return the address that the kernel prints as words of four bytes in the machine's byte order."""
    raw = b"".join(bytes.fromhex(text[at : at + 8])[::-1] for at in range(0, len(text), 8))
    if len(raw) == 4:
        return socket.inet_ntop(socket.AF_INET, raw)
    shown = socket.inet_ntop(socket.AF_INET6, raw)
    return shown[len("::ffff:") :] if shown.startswith("::ffff:") and "." in shown else shown


def _list_sockets(pid: int) -> set[int]:
    found = set()
    with contextlib.suppress(OSError):
        for name in os.listdir(f"/proc/{pid}/fd"):
            with contextlib.suppress(OSError):
                if match := re.match(r"socket:\[(\d+)\]", os.readlink(f"/proc/{pid}/fd/{name}")):
                    found.add(int(match[1]))
    return found
