"""WebSocket of the API server as a plain stream. The first byte of each message is its channel."""

import socket
import threading
from contextlib import suppress

from websocket import ABNF, WebSocket, WebSocketException

CHUNK_BYTES = 1 << 16
STDIN_CHANNEL = b"\0"
DRAIN_SECONDS = 1.0


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
