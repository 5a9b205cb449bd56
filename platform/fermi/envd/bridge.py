"""Connects standard input and output to the environment daemon of a run on this node:

    python -m fermi.envd.bridge SPEC.json

Prints a line once the daemon has accepted the connection and its token; the rest is the daemon's. The end of the input
is passed on; exits when the daemon has no more.
"""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import threading

from fermi.envd import protocol

CHUNK_BYTES = 1 << 16


def main(path: str) -> int:
    """Forward both directions and return the exit code."""
    stem = os.path.abspath(path).removesuffix(".json")
    with open(stem + ".token", encoding="ascii") as file:
        token = file.read()
    keeper = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    folder = os.open(os.path.dirname(stem), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    keeper.connect(f"/proc/self/fd/{folder}/{os.path.basename(stem)}.sock")
    keeper.sendall(protocol.build_greeting(token))
    write_output(protocol.READY_LINE)
    threading.Thread(target=_forward_input, args=(keeper,), daemon=True).start()
    with contextlib.suppress(OSError):
        while data := keeper.recv(CHUNK_BYTES):
            write_output(data)
    return 0


def _forward_input(keeper: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := os.read(0, CHUNK_BYTES):
            keeper.sendall(data)
        keeper.shutdown(socket.SHUT_WR)


def write_output(data: bytes) -> None:
    """Write all bytes to standard output."""
    left = memoryview(data)
    while left:
        left = left[os.write(1, left) :]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
