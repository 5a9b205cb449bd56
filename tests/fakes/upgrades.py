"""WebSockets of fakes that are plain HTTP servers: the handshake, and messages as one thread reads and writes them."""

import base64
import contextlib
import hashlib
import select
import socket
from collections.abc import Iterator, Sequence
from http.server import BaseHTTPRequestHandler

from websockets.frames import Opcode
from websockets.protocol import OPEN, SERVER, Protocol

GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"


def chosen(handler: BaseHTTPRequestHandler, known: Sequence[str]) -> str:
    """The protocol: of those that the client offers, the first that is known. Raises ValueError."""
    if handler.headers.get("Upgrade", "").lower() != "websocket":
        raise ValueError("Upgrade request required")
    offered = [one.strip() for one in handler.headers.get("Sec-WebSocket-Protocol", "").split(",")]
    found = next((one for one in offered if one in known), None)
    if found is None:
        raise ValueError("no protocol that is known")
    return found


def upgrade(handler: BaseHTTPRequestHandler, protocol: str = "") -> "Talk":
    key = handler.headers["Sec-WebSocket-Key"].encode()
    handler.send_response(101)
    handler.send_header("Upgrade", "websocket")
    handler.send_header("Connection", "Upgrade")
    handler.send_header("Sec-WebSocket-Accept", base64.b64encode(hashlib.sha1(key + GUID).digest()).decode())
    if protocol:
        handler.send_header("Sec-WebSocket-Protocol", protocol)
    handler.end_headers()
    handler.wfile.flush()
    return Talk(handler.connection)


class Talk:
    """Raises OSError where the client has gone."""

    def __init__(self, outside: socket.socket) -> None:
        self.outside = outside
        self._talk = Protocol(SERVER, state=OPEN, max_size=None)
        self.said_all = False
        """The client has closed it in due form."""

    def send(self, data: bytes) -> None:
        self._talk.send_binary(data)
        self._flush()

    def send_message(self, channel: int, data: bytes) -> None:
        """As Kubernetes marks messages: by their first byte."""
        self.send(bytes([channel]) + data)

    def messages(self) -> Iterator[bytes]:
        """Binary ones that have come; raises ConnectionError at the end. To be asked when something can be read."""
        data = self.outside.recv(1 << 16)
        self._talk.receive_data(data) if data else self._talk.receive_eof()
        for frame in self._talk.events_received():
            if frame.opcode in (Opcode.CLOSE, Opcode.TEXT):  # an agent's word that its side has no more
                self.said_all = True
                raise ConnectionError("said all")
            if frame.opcode is Opcode.BINARY:
                yield bytes(frame.data)
        self._flush()  # pongs
        if not data:
            raise ConnectionError("gone")

    def receive(self) -> Iterator[tuple[int, bytes]]:
        """What has come, by channel."""
        for message in self.messages():
            if message:
                yield message[0], message[1:]

    def gone(self) -> bool:
        """Whether the client has closed its connection; what it has said before stays unread."""
        poll = select.poll()
        poll.register(self.outside, select.POLLRDHUP)
        return bool(poll.poll(0))

    def cut(self) -> None:
        """Ends it without a closing frame."""
        with contextlib.suppress(OSError):
            self.outside.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._talk.send_close()
        self._flush()

    def _flush(self) -> None:
        for piece in self._talk.data_to_send():
            self.outside.sendall(piece)
