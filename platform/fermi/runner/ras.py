"""Queries NCCL's RAS subsystem (since 2.24) for the state of a job: each process of the job can be asked, and answers
for all. Standard library only, Python 3.9 or later.

Lines in, text out, on a port of the host (NCCL user guide, "RAS"; `src/ras/client_support.cc`): commands end with a
line feed, `timeout 1` is answered by `OK`, `status` by a report after which the server closes. A client that closes
first gets nothing. All processes of one user may listen on one address (SO_REUSEPORT), so jobs that keep NCCL's default
would answer for each other, and another user's cannot listen at all: each node's ranks get an address of their own.
"""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Mapping

ADDRESS_VARIABLE = "NCCL_RAS_ADDR"
DEFAULT_ADDRESS = "localhost:28028"
HOST, PORTS, MAX_TRIES = "127.0.0.1", range(29_600, 32_768), 16
"""Ports above the usual rendezvous port, below those that Linux gives to connections. Chosen at random, because ranks
listen later and other nodes choose meanwhile."""
STATUS_REQUEST = b"timeout 1\nstatus\n"
TIMEOUT_SECONDS = 1.5
MAX_BYTES, MAX_LINES, MAX_LINE_LENGTH = 1 << 15, 24, 200


def choose_address() -> str:
    """Return the address for the ranks of one node: that of this process's environment, or else a free port; NCCL's
    default if none was free."""
    if said := os.environ.get(ADDRESS_VARIABLE):
        return said
    for _ in range(MAX_TRIES):
        port = PORTS[int.from_bytes(os.urandom(4), "little") % len(PORTS)]
        with contextlib.suppress(OSError), socket.create_server((HOST, port)):
            return f"{HOST}:{port}"
    return DEFAULT_ADDRESS


def query_status(env: Mapping[str, str]) -> list[str]:
    """Return the last lines of the report, which state problems. Empty if no process answers soon."""
    if env.get("NCCL_RAS_ENABLE") == "0":
        return []
    host, _, port = env.get(ADDRESS_VARIABLE, DEFAULT_ADDRESS).rpartition(":")
    said = b""
    with contextlib.suppress(OSError, ValueError, OverflowError):
        connection = socket.create_connection((host.strip("[]") or "localhost", int(port)), timeout=0.2)
        with connection:
            connection.settimeout(TIMEOUT_SECONDS)
            connection.sendall(STATUS_REQUEST)
            while len(said) < MAX_BYTES and (piece := connection.recv(1 << 13)):
                said += piece
    lines = [line.strip()[:MAX_LINE_LENGTH] for line in said.decode(errors="replace").splitlines()]
    return [line for line in lines if line and line != "OK" and set(line) != {"="}][-MAX_LINES:]
