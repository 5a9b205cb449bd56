"""WebSocket of the API server as a plain stream. The first byte of each message is its channel."""

import json
import logging
import socket
import threading
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from websocket import ABNF, WebSocket, WebSocketException

CHUNK_BYTES = 1 << 16
STDIN_CHANNEL = b"\0"
DRAIN_SECONDS = 1.0
MAX_STDERR_BYTES = 2000  # bytes of a program's standard error that are kept
STDOUT_CHANNEL, STDERR_CHANNEL, STATUS_CHANNEL = 1, 2, 3  # of a program
DATA_CHANNEL, ERROR_CHANNEL = 0, 1  # of a port

log = logging.getLogger(__name__)


class WebSocketStream:
    """Stream over a WebSocket. `stream`: reads and writes the data. Two threads copy, until either side has ended;
    however that happens, both threads end without an exception and `stream` is closed."""

    what = ""
    """Name of the threads."""

    def __init__(self, talk: WebSocket) -> None:
        self.stream, self._inside = socket.socketpair()
        self._talk = talk
        self._hearing = threading.Thread(target=self._hear, name=f"{self.what}, out", daemon=True)
        self._hearing.start()
        threading.Thread(target=self._give, name=f"{self.what}, in", daemon=True).start()

    def _take(self, channel: int, data: bytes) -> None:
        """Process a message. Raise OSError where nothing more is to come."""
        raise NotImplementedError

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

    def _give(self) -> None:
        with suppress(OSError, WebSocketException):
            while data := self._inside.recv(CHUNK_BYTES):
                self._talk.send(STDIN_CHANNEL + data, ABNF.OPCODE_BINARY)
        with suppress(OSError, WebSocketException):
            self._talk.send_close()
        with suppress(OSError, WebSocketException):
            self._talk.abort()
        self._hearing.join()
        self._inside.close()


class PodExecStream(WebSocketStream):
    """Program in a container: the API server's `pods/exec`. `stream`: its standard output and input.

    Channel 0 is standard input, 1 output, 2 errors, 3 how it ended, a Status (kubernetes,
    staging/src/k8s.io/apimachinery/pkg/util/remotecommand/constants.go). A program whose stream was cut reads the end
    of its input; Kubernetes does not end it.
    """

    what = "exec"

    def __init__(self, talk: WebSocket) -> None:
        self._complaints = b""
        self._status: Mapping[str, Any] = {}
        super().__init__(talk)

    def why(self) -> str:
        """Return the end of the standard error of a program that has ended, or why it could not start."""
        self._hearing.join(DRAIN_SECONDS)
        said = self._complaints.decode(errors="replace").strip()
        return said or str(self._status.get("message") or "")

    def _take(self, channel: int, data: bytes) -> None:
        if channel == STDOUT_CHANNEL:
            self._inside.sendall(data)
        elif channel == STDERR_CHANNEL:
            self._complaints = (self._complaints + data)[-MAX_STDERR_BYTES:]
        elif channel == STATUS_CHANNEL:
            with suppress(ValueError):
                self._status = dict(json.loads(data))


class PortForwardStream(WebSocketStream):
    """Stream to a port of a pod's own loopback: the API server's `pods/portforward`.

    Channel 0 carries bytes in both directions, 1 an error; the first message of each is the port's number (kubernetes,
    staging/src/k8s.io/kubelet/pkg/cri/streaming/portforward/websocket.go). Where one side closes its direction, both
    are cut off: Kubernetes' forwarding knows no half-closed connection.
    """

    what = "port forward"

    def __init__(self, talk: WebSocket) -> None:
        self._begun: set[int] = set()
        super().__init__(talk)

    def _take(self, channel: int, data: bytes) -> None:
        if channel not in self._begun:
            self._begun.add(channel)
        elif channel == DATA_CHANNEL:
            self._inside.sendall(data)
        elif channel == ERROR_CHANNEL:
            log.debug("port forwarding: %s", data.decode(errors="replace"))
            raise ConnectionAbortedError
