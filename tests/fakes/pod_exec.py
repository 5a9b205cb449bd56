"""Commands in a container, as a client of `pods/exec` sees them."""

import json
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlencode

from websocket import (
    ABNF,
    WebSocket,
    WebSocketBadStatusException,
    WebSocketConnectionClosedException,
    create_connection,
)

from tests.fakes.kubernetes import FakeCluster
from tests.fakes.kubernetes.cluster import TOKEN
from tests.fakes.kubernetes.pod_exec import CLOSE, ERR, IN, OUT, STATUS, V4, V5
from tests.fakes.kubernetes.store import Object

SECONDS = 180.0


class RefusedError(Exception):
    """What came instead of the handshake: an HTTP status, and a Status where the API server itself answers."""

    def __init__(self, code: int, kind: str, body: bytes) -> None:
        super().__init__(f"{code}: {body!r}")
        self.code, self.body = code, body
        self.status: dict[str, Any] = json.loads(body) if kind == "application/json" else {}


class Exec:
    """One stream. `out`, `err`: what has come so far; `status`: how the command ended; `cut`: the stream ended without
    a closing frame."""

    def __init__(
        self, cluster: FakeCluster, pod: Object, *command: str, container: str = "", protocol: str = V5
    ) -> None:
        meta = pod["metadata"]
        asked = [("stdin", "true"), ("stdout", "true"), ("stderr", "true"), *(("command", word) for word in command)]
        asked += [("container", container)] if container else []
        path = f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}/exec?{urlencode(asked)}"
        self.out, self.err = bytearray(), bytearray()
        self.status: dict[str, Any] | None = None
        self.closed = self.cut = False
        headers = [f"Authorization: Bearer {TOKEN}"]
        try:
            self.socket: WebSocket = create_connection(
                cluster.url.replace("http", "ws") + path, SECONDS, header=headers, subprotocols=[protocol]
            )
        except WebSocketBadStatusException as error:
            kind = (error.resp_headers or {}).get("content-type", "")
            raise RefusedError(error.status_code, kind, error.resp_body or b"") from None

    def write(self, data: bytes) -> None:
        self.socket.send_binary(bytes([IN]) + data)

    def end_input(self) -> None:
        """Of v5 alone."""
        self.socket.send_binary(bytes([CLOSE, IN]))

    def read(self) -> bool:
        """Takes one message. False: the stream has ended."""
        if self.closed or self.cut:
            return False
        try:
            code, data = self.socket.recv_data()
        except (OSError, WebSocketConnectionClosedException):
            self.cut = True
            return False
        if code == ABNF.OPCODE_CLOSE:
            self.closed = True
            return False
        if data and data[0] == OUT:
            self.out += data[1:]
        elif data and data[0] == ERR:
            self.err += data[1:]
        elif data and data[0] == STATUS:
            self.status = json.loads(data[1:])
        return True

    def until(self, what: bytes) -> bytearray:
        """Reads until the command has printed this; returns all that it has printed."""
        while what not in self.out:
            assert self.read(), (self.out, self.err, self.status)
        return self.out

    def rest(self) -> Self:
        """Reads to the end."""
        while self.read():
            pass
        return self

    @property
    def code(self) -> int:
        """The exit status on channel 3. Raises AssertionError where there is none."""
        assert self.status is not None, (self.out, self.err, self.cut)
        if self.status["status"] == "Success":
            return 0
        causes = (self.status.get("details") or {}).get("causes") or []
        return next(int(one["message"]) for one in causes if one["reason"] == "ExitCode")

    def say_goodbye(self) -> None:
        """A closing frame."""
        self.socket.send_close()

    def close(self) -> None:
        """Without a word."""
        self.socket.shutdown()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


def run(cluster: FakeCluster, pod: Object, *command: str, **more: Any) -> Exec:
    """One that has ended."""
    with Exec(cluster, pod, *command, **more) as one:
        return one.rest()


__all__ = ["V4", "V5", "Exec", "RefusedError", "run"]
