"""Port forwarding over a WebSocket, as kubelets speak it (`v4.channel.k8s.io`): for the one port asked for, channel 0
carries bytes and channel 1 an error; each begins with the port's number (staging/src/k8s.io/kubelet/pkg/cri/streaming/
portforward/websocket.go). A pod's loopback is this machine's. The end of one side ends both."""

import contextlib
import select
import socket
import struct
from http.server import BaseHTTPRequestHandler

from tests.fakes import upgrades
from tests.fakes.kubernetes import errors
from tests.fakes.kubernetes.errors import bad_request
from tests.fakes.kubernetes.store import Object
from tests.fakes.upgrades import Talk

PROTOCOLS = ("v4.channel.k8s.io",)


def serve(handler: BaseHTTPRequestHandler, pod: Object, port: int) -> None:
    protocol = errors.protocol(handler, PROTOCOLS)
    if (pod.get("status") or {}).get("phase") != "Running":
        raise bad_request(f"unable to forward port because pod is not running. Current status={pod['status']['phase']}")
    with contextlib.suppress(OSError):
        _carry(upgrades.upgrade(handler, protocol), port)


def _carry(talk: Talk, port: int) -> None:
    for channel in (0, 1):
        talk.send_message(channel, struct.pack("<H", port))
    try:
        inside = socket.create_connection(("127.0.0.1", port), 5.0)
    except OSError as error:
        return talk.send_message(1, f"an error occurred forwarding {port}: {error.strerror}".encode())
    with inside:
        inside.settimeout(None)
        while True:
            ready, _, _ = select.select([talk.outside, inside], [], [])
            if inside in ready:
                if not (data := inside.recv(1 << 16)):
                    break
                talk.send_message(0, data)
            if talk.outside in ready:
                for channel, data in talk.receive():
                    if channel == 0:
                        inside.sendall(data)
    return talk.close()
