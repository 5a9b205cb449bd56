"""Program in a container as a stream: the API server's `pods/exec` over a WebSocket.

Channel 0 is standard input, 1 output, 2 errors, 3 how it ended, a Status (kubernetes,
staging/src/k8s.io/apimachinery/pkg/util/remotecommand/constants.go). A program whose stream was cut reads the end of
its input; Kubernetes does not end it.
"""

import json
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from websocket import WebSocket

from fermi.engines.kubernetes.channels import DRAIN_SECONDS, WebSocketStream

MAX_STDERR_BYTES = 2000  # bytes of its standard error that are kept
STDOUT_CHANNEL, STDERR_CHANNEL, STATUS_CHANNEL = 1, 2, 3


class PodExecStream(WebSocketStream):
    """Program in a container. `stream`: its standard output and input."""

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
