"""Joins a stream of this host with a WebSocket of the platform: bytes as binary messages, and `{"end": true}` as a text
message when a side has no more."""

import json
import socket
import threading
from contextlib import suppress

from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection

CHUNK_BYTES = 1 << 16
END_MESSAGE = json.dumps({"end": True})


def join_streams(stream: socket.socket, web: ClientConnection) -> None:
    """Forward both directions until both sides have sent all, or one is gone; closes the WebSocket, not the stream."""
    stream.settimeout(None)
    outward = threading.Thread(target=_forward_stream, args=(stream, web), daemon=True)
    outward.start()
    try:
        for message in web:
            if isinstance(message, str):
                stream.shutdown(socket.SHUT_WR)
                outward.join()
                return
            stream.sendall(message)
        _shut_down(stream)  # the platform went without a word
    except (OSError, ConnectionClosed):
        _shut_down(stream)
    finally:
        with suppress(OSError, ConnectionClosed):
            web.close()


def _forward_stream(stream: socket.socket, web: ClientConnection) -> None:
    try:
        while data := stream.recv(CHUNK_BYTES):
            web.send(data)
        web.send(END_MESSAGE)
    except (OSError, ConnectionClosed):
        with suppress(OSError, ConnectionClosed):
            web.close()


def _shut_down(stream: socket.socket) -> None:
    with suppress(OSError):
        stream.shutdown(socket.SHUT_RDWR)
