"""A way to an API server that cuts streams of commands (`pods/exec`) at any byte, as a load balancer, a tunnel or a
cable does: without a closing frame, in both directions."""

import contextlib
import socket
import struct
import threading
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

AT_ONCE = 1 << 16
RESETS = struct.pack("ii", 1, 0)
"""SO_LINGER of a socket whose end the other side is told as a reset (socket(7))."""


class Cuts:
    """`url`: where clients are to go instead; nothing is waited for. `cuts`: how many streams were cut."""

    def __init__(self, url: str) -> None:
        there = urlsplit(url)
        self._there = there.hostname or "", there.port or 0
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._lock = threading.Lock()
        self._left: int | None = None
        self._all: set[socket.socket] = set()
        self.cuts = 0
        self.url = f"http://127.0.0.1:{self._listening.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def kubeconfig(self, like: Path, made: Path) -> Path:
        """Writes one that leads here."""
        host, port = self._there
        text = like.read_text(encoding="utf-8")
        made.write_text(text.replace(f"http://{host}:{port}", self.url), encoding="utf-8")
        return made

    def cut_after(self, size: int | None) -> None:
        """The stream that carries the byte after so many more of all streams, either way, ends there; None: no
        further one."""
        with self._lock:
            self._left = size

    def close(self) -> None:
        self._listening.close()
        for one in list(self._all):
            _reset(one)

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                threading.Thread(target=self._carry, args=(self._listening.accept()[0],), daemon=True).start()

    def _carry(self, outside: socket.socket) -> None:
        with outside, contextlib.suppress(OSError), socket.create_connection(self._there) as inside:
            self._all |= {outside, inside}
            head = outside.recv(AT_ONCE)
            inside.sendall(head)
            allowed = self._allowed if b"/exec?" in head.partition(b"\r\n")[0] else len
            back = threading.Thread(target=_pump, args=(inside, outside, allowed), daemon=True)
            back.start()
            _pump(outside, inside, allowed)
            back.join()
            self._all -= {outside, inside}

    def _allowed(self, data: bytes) -> int:
        """How much of it may still pass."""
        with self._lock:
            if self._left is None:
                return len(data)
            if self._left >= len(data):
                self._left -= len(data)
                return len(data)
            passes, self._left = self._left, None
            self.cuts += 1
            return passes


def _pump(source: socket.socket, target: socket.socket, allowed: Callable[[bytes], int]) -> None:
    try:
        while data := source.recv(AT_ONCE):
            passes = allowed(data)
            target.sendall(data[:passes])
            if passes < len(data):
                _reset(source)
                _reset(target)
                return
        target.shutdown(socket.SHUT_WR)
    except OSError:
        _reset(source)
        _reset(target)


def _reset(one: socket.socket) -> None:
    """Wakes whoever reads from it, too."""
    with contextlib.suppress(OSError):
        one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESETS)
        one.shutdown(socket.SHUT_RDWR)
