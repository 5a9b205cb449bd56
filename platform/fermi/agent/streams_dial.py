"""Opens streams of this host for clients of the platform, which wait a few seconds for each: into a managed
environment, or next to a rank. The platform cannot reach the host, so the agent dials both ends and joins them."""

import json
import socket
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress

from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection

from fermi.agent.server import WorkerApi
from fermi.client import FermiError

CHUNK_BYTES = 1 << 16
END_MESSAGE = json.dumps({"end": True})


Dial = Callable[[str, str], socket.socket | None]
"""Returns a stream for a worker and the name of a run, or None. Raises OSError and BackendError."""


class ReverseTunnels:
    """Opens the streams that heartbeats request."""

    def __init__(
        self, server: WorkerApi, token: Callable[[str], str], dial: Dial, say: Callable[[str, str, str], None]
    ) -> None:
        self._server, self._token, self._dial, self._say = server, token, dial, say
        self._opened: deque[str] = deque(maxlen=1000)

    def learn(self, worker: str, channels: Iterable[Mapping[str, str]]) -> None:
        """Open the channels that are new in the answer to a heartbeat; the same ones are repeated there for a while."""
        for channel in channels:
            if channel["id"] not in self._opened:
                self._opened.append(channel["id"])
                about = (worker, channel["id"], channel["run"])
                threading.Thread(target=self._open, args=about, daemon=True).start()

    def _open(self, worker: str, channel: str, run: str) -> None:
        try:
            stream = self._dial(worker, run)
        except Exception as error:  # the waiting client times out by itself
            self._say("door", run, f"no answer: {error}")
            return
        self._say("door", run, "")
        if stream is None:
            return
        with stream:
            try:
                web = self._server.channel(worker, self._token(worker), channel)
            except FermiError as error:
                self._say("channel", run, f"no way to the platform: {error.message}")
                return
            self._say("channel", run, "")
            join_streams(stream, web)


def join_streams(stream: socket.socket, web: ClientConnection) -> None:
    """Forward both directions until both sides have sent all, or one is gone: bytes as binary messages, and
    `{"end": true}` as a text message when a side has no more. Closes the WebSocket, not the stream."""
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
