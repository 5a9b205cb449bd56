"""Port of a pod's own loopback as a stream: the API server's `pods/portforward` over a WebSocket.

Channel 0 carries bytes in both directions, 1 an error; the first message of each is the port's number (kubernetes,
staging/src/k8s.io/kubelet/pkg/cri/streaming/portforward/websocket.go). Where one side closes its direction, both are
cut off: Kubernetes' forwarding knows no half-closed connection.
"""

import logging

from websocket import WebSocket

from fermi.engines.kubernetes.channels import WebSocketStream

log = logging.getLogger(__name__)

DATA_CHANNEL, ERROR_CHANNEL = 0, 1


class PortForwardStream(WebSocketStream):
    """Stream to a port of a pod."""

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
