"""What NCCL says of a job (its RAS subsystem, since 2.24): each process of a job may be asked, and answers for all.
Standard library only, Python 3.9 or later.

Lines in, text out, on a port of the host's own (NCCL user guide, "RAS"; `src/ras/client_support.cc`): commands are
ended by a line feed, `timeout 1` is answered by `OK`, `status` by a report after which the server closes. Who closes
first gets nothing.
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Mapping

DEFAULT = "localhost:28028"
ASK = b"timeout 1\nstatus\n"
SECONDS = 1.5
MOST_BYTES, MOST_LINES, LONGEST = 1 << 15, 24, 200


def ask(env: Mapping[str, str]) -> list[str]:
    """The report's last lines, where what is wrong stands. Empty where nobody answers, and that soon."""
    if env.get("NCCL_RAS_ENABLE") == "0":
        return []
    host, _, port = env.get("NCCL_RAS_ADDR", DEFAULT).rpartition(":")
    said = b""
    with contextlib.suppress(OSError, ValueError, OverflowError):
        connection = socket.create_connection((host.strip("[]") or "localhost", int(port)), timeout=0.2)
        with connection:
            connection.settimeout(SECONDS)
            connection.sendall(ASK)
            while len(said) < MOST_BYTES and (piece := connection.recv(1 << 13)):
                said += piece
    lines = [line.strip()[:LONGEST] for line in said.decode(errors="replace").splitlines()]
    return [line for line in lines if line and line != "OK" and set(line) != {"="}][-MOST_LINES:]
