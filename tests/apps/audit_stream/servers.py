"""Receivers of the audit trail on this machine: syslog over TCP, TLS and UDP, and HTTP."""

import json
import re
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

MESSAGE = re.compile(
    rb"<110>1 \d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z [!-~]+ fermi - (?P<msgid>[!-~]{1,32}) - (?P<text>.+)", re.DOTALL
)


@dataclass
class SyslogServer:
    """`messages`: what came, whole. `closes`: it reads nothing and closes each connection."""

    port: int
    messages: list[bytes] = field(default_factory=list)
    closes: bool = False

    @property
    def events(self) -> list[dict[str, Any]]:
        matches = [MESSAGE.fullmatch(message) for message in self.messages]
        assert all(matches), self.messages
        return [json.loads(match["text"]) for match in matches if match]

    @property
    def ids(self) -> list[int]:
        return [event["id"] for event in self.events]


@contextmanager
def syslog_server(certificate: tuple[Path, Path] | None = None) -> Iterator[SyslogServer]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        server = SyslogServer(listening.getsockname()[1])
        context = None
        if certificate:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*certificate)

        def accept() -> None:
            with suppress(OSError):
                while True:
                    threading.Thread(target=serve, args=(listening.accept()[0],), daemon=True).start()

        def serve(opened: socket.socket) -> None:
            with suppress(OSError, ValueError), opened:
                if server.closes:
                    return
                plain = context.wrap_socket(opened, server_side=True) if context else opened
                with plain, plain.makefile("rb") as stream:
                    while length := _read_length(stream):
                        server.messages.append(stream.read(length))

        threading.Thread(target=accept, daemon=True).start()
        yield server
        listening.shutdown(socket.SHUT_RDWR)


def _read_length(stream: Any) -> int:
    digits = b""
    while (byte := stream.read(1)) not in (b" ", b""):
        digits += byte
    return int(digits or b"0")


@dataclass
class HookServer:
    """`requests`: headers and body of each. `statuses`: the next answers, 200 otherwise; 0: none at all."""

    port: int
    requests: list[tuple[dict[str, str], bytes]] = field(default_factory=list)
    statuses: list[int] = field(default_factory=list)
    released: threading.Event = field(default_factory=threading.Event)

    @property
    def ids(self) -> list[int]:
        return [json.loads(line)["id"] for _, body in self.requests for line in body.splitlines()]


@contextmanager
def hook_server() -> Iterator[HookServer]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            hooks.requests.append((dict(self.headers), body))
            status = hooks.statuses.pop(0) if hooks.statuses else 200
            if not status:
                hooks.released.wait(60)
                return
            self.send_response(status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        hooks = HookServer(server.server_address[1])
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield hooks
        hooks.released.set()
        server.shutdown()
