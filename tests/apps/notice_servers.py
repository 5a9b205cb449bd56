"""Where messages arrive in tests: a real SMTP server and a real HTTP server, on loopback."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from email import message_from_bytes, policy
from email.message import EmailMessage
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from aiosmtpd.controller import Controller
from aiosmtpd.smtp import SMTP, Envelope, Session

from tests.running import free_port


@dataclass
class Mails:
    port: int
    received: list[EmailMessage] = field(default_factory=list)

    async def handle_DATA(self, server: SMTP, session: Session, envelope: Envelope) -> str:
        content = envelope.content
        assert isinstance(content, bytes)
        self.received.append(message_from_bytes(content, policy=policy.default))  # type: ignore[arg-type]
        return "250 OK"


@contextmanager
def smtp() -> Iterator[Mails]:
    mails = Mails(free_port())
    controller = Controller(mails, hostname="127.0.0.1", port=mails.port)
    controller.start()
    try:
        yield mails
    finally:
        controller.stop()


@dataclass
class Hooks:
    """`answers`: what to answer next, by status; 200 once there is none left. `hold`: requests wait for it."""

    url: str = ""
    received: list[tuple[dict[str, str], Any, bytes]] = field(default_factory=list)
    answers: list[tuple[int, dict[str, str]]] = field(default_factory=list)
    hold: threading.Event | None = None


@contextmanager
def http() -> Iterator[Hooks]:
    hooks = Hooks()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            hooks.received.append((dict(self.headers), json.loads(body), body))
            if hooks.hold:
                hooks.hold.wait(30)
            status, headers = hooks.answers.pop(0) if hooks.answers else (200, {})
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", "5")
            self.end_headers()
            self.wfile.write(b"noted")

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    hooks.url = f"http://127.0.0.1:{server.server_address[1]}/hook"
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield hooks
    finally:
        server.shutdown()
        server.server_close()
