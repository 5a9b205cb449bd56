"""WebSockets of the API server: the handshake, and messages whose first byte is their channel."""

import base64
import hashlib
import socket
from collections.abc import Iterator, Sequence
from http.server import BaseHTTPRequestHandler

from websockets.frames import Opcode
from websockets.protocol import OPEN, SERVER, Protocol

from tests.fakes.kubernetes.errors import bad_request

GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"


def chosen(handler: BaseHTTPRequestHandler, known: Sequence[str]) -> str:
    """The protocol: of those that the client offers, the first that is known. Raises Refused."""
    if handler.headers.get("Upgrade", "").lower() != "websocket":
        raise bad_request("Upgrade request required")
    offered = [one.strip() for one in handler.headers.get("Sec-WebSocket-Protocol", "").split(",")]
    found = next((one for one in offered if one in known), None)
    if found is None:
        raise bad_request("no protocol that is known")
    return found


def upgrade(handler: BaseHTTPRequestHandler, protocol: str) -> "Talk":
    key = handler.headers["Sec-WebSocket-Key"].encode()
    handler.send_response(101)
    handler.send_header("Upgrade", "websocket")
    handler.send_header("Connection", "Upgrade")
    handler.send_header("Sec-WebSocket-Accept", base64.b64encode(hashlib.sha1(key + GUID).digest()).decode())
    handler.send_header("Sec-WebSocket-Protocol", protocol)
    handler.end_headers()
    handler.wfile.flush()
    return Talk(handler.connection)


class Talk:
    """One thread's. Raises OSError where the client has gone."""

    def __init__(self, outside: socket.socket) -> None:
        self.outside = outside
        self._talk = Protocol(SERVER, state=OPEN, max_size=None)

    def say(self, channel: int, data: bytes) -> None:
        self._talk.send_binary(bytes([channel]) + data)
        self._flush()

    def heard(self) -> Iterator[tuple[int, bytes]]:
        """What has come, by channel; raises ConnectionError at the end. To be asked when there is something to read."""
        data = self.outside.recv(1 << 16)
        self._talk.receive_data(data) if data else self._talk.receive_eof()
        for frame in self._talk.events_received():
            if frame.opcode is Opcode.CLOSE:
                raise ConnectionError("closed")
            if frame.opcode is Opcode.BINARY and frame.data:
                yield frame.data[0], bytes(frame.data[1:])
        self._flush()  # pongs
        if not data:
            raise ConnectionError("gone")

    def close(self) -> None:
        self._talk.send_close()
        self._flush()

    def _flush(self) -> None:
        for piece in self._talk.data_to_send():
            self.outside.sendall(piece)
