"""A program in a container as a stream: the API server's `pods/exec` over a WebSocket.

Of each message the first byte is its channel: 0 standard input, 1 output, 2 errors, 3 how it ended, a Status
(kubernetes, staging/src/k8s.io/apimachinery/pkg/util/remotecommand/constants.go). A program whose stream was cut reads
the end of its input; Kubernetes does not end it.
"""

import json
import socket
import threading
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from websocket import ABNF, WebSocket, WebSocketException

AT_ONCE = 1 << 16
SAID = 2000  # bytes of what it complains of
OUT, ERR, STATUS = 1, 2, 3
LAST_SECONDS = 1.0


class Executing:
    """`stream`: what it writes, and what it is to read. Two threads, until either side has gone."""

    def __init__(self, talk: WebSocket) -> None:
        self.stream, self._inside = socket.socketpair()
        self._talk = talk
        self._complaints = b""
        self._status: Mapping[str, Any] = {}
        self._hearing = threading.Thread(target=self._hear, name="exec, out", daemon=True)
        self._hearing.start()
        threading.Thread(target=self._give, name="exec, in", daemon=True).start()

    def why(self) -> str:
        """What was said of a program that has ended, or could not begin."""
        self._hearing.join(LAST_SECONDS)
        said = self._complaints.decode(errors="replace").strip()
        return said or str(self._status.get("message") or "")

    def _hear(self) -> None:
        with suppress(OSError, WebSocketException):
            while True:
                kind, frame = self._talk.recv_data_frame(True)  # which answers pings
                if kind == ABNF.OPCODE_CLOSE:
                    break
                if kind == ABNF.OPCODE_BINARY and frame.data:
                    self._take(frame.data[0], bytes(frame.data[1:]))
        with suppress(OSError):
            self._inside.shutdown(socket.SHUT_RDWR)  # wakes the other thread
        with suppress(OSError, WebSocketException):
            self._talk.shutdown()

    def _take(self, channel: int, data: bytes) -> None:
        if channel == OUT:
            self._inside.sendall(data)
        elif channel == ERR:
            self._complaints = (self._complaints + data)[-SAID:]
        elif channel == STATUS:
            with suppress(ValueError):
                self._status = dict(json.loads(data))

    def _give(self) -> None:
        with suppress(OSError, WebSocketException):
            while data := self._inside.recv(AT_ONCE):
                self._talk.send(b"\0" + data, ABNF.OPCODE_BINARY)
        with suppress(OSError, WebSocketException):
            self._talk.send_close()
        with suppress(OSError, WebSocketException):
            self._talk.abort()
        self._hearing.join()
        self._inside.close()
