"""Port forwarding over a WebSocket, as kubelets speak it (`v4.channel.k8s.io`): for the one port asked for, channel 0
carries bytes and channel 1 an error; each begins with the port's number (staging/src/k8s.io/kubelet/pkg/cri/streaming/
portforward/websocket.go). A pod's loopback is this machine's. The end of one side ends both."""

import base64
import contextlib
import hashlib
import select
import socket
import struct
from http.server import BaseHTTPRequestHandler

from websockets.frames import Opcode
from websockets.protocol import OPEN, SERVER, Protocol

from tests.fakes.kubernetes.errors import bad_request
from tests.fakes.kubernetes.store import Object

GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
PROTOCOL = "v4.channel.k8s.io"


def serve(handler: BaseHTTPRequestHandler, pod: Object, port: int) -> None:
    if handler.headers.get("Upgrade", "").lower() != "websocket":
        raise bad_request("Upgrade request required")
    if PROTOCOL not in handler.headers.get("Sec-WebSocket-Protocol", ""):
        raise bad_request("no protocol that is known")
    if (pod.get("status") or {}).get("phase") != "Running":
        raise bad_request(f"unable to forward port because pod is not running. Current status={pod['status']['phase']}")
    key = handler.headers["Sec-WebSocket-Key"].encode()
    handler.send_response(101)
    handler.send_header("Upgrade", "websocket")
    handler.send_header("Connection", "Upgrade")
    handler.send_header("Sec-WebSocket-Accept", base64.b64encode(hashlib.sha1(key + GUID).digest()).decode())
    handler.send_header("Sec-WebSocket-Protocol", PROTOCOL)
    handler.end_headers()
    handler.wfile.flush()
    with contextlib.suppress(OSError):
        _carry(handler.connection, port)


def _carry(outside: socket.socket, port: int) -> None:
    talk = Protocol(SERVER, state=OPEN, max_size=None)

    def say(channel: int, data: bytes) -> None:
        talk.send_binary(bytes([channel]) + data)
        for piece in talk.data_to_send():
            outside.sendall(piece)

    for channel in (0, 1):
        say(channel, struct.pack("<H", port))
    try:
        inside = socket.create_connection(("127.0.0.1", port), 5.0)
    except OSError as error:
        return say(1, f"an error occurred forwarding {port}: {error.strerror}".encode())
    with inside:
        inside.settimeout(None)
        while True:
            ready, _, _ = select.select([outside, inside], [], [])
            if inside in ready:
                if not (data := inside.recv(1 << 16)):
                    break
                say(0, data)
            if outside in ready:
                data = outside.recv(1 << 16)
                talk.receive_data(data) if data else talk.receive_eof()
                for frame in talk.events_received():
                    if frame.opcode is Opcode.CLOSE:
                        return None
                    if frame.opcode is Opcode.BINARY and frame.data[:1] == b"\0":
                        inside.sendall(frame.data[1:])
                if not data:
                    return None
    talk.send_close()
    for piece in talk.data_to_send():
        outside.sendall(piece)
    return None
