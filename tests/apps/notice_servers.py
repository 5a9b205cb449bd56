"""Where messages arrive in tests: a real SMTP server and a real HTTP server, on loopback."""

import json
import ssl
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from email import message_from_bytes, policy
from email.message import EmailMessage
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from unittest import mock

from aiosmtpd.controller import Controller
from aiosmtpd.smtp import SMTP, AuthResult, Envelope, Session

from apps.notices import delivery
from apps.notices.sender import request
from apps.notices.sender.process import SenderProcess
from tests.platform_process import free_port


@contextmanager
def one_sender() -> Iterator[None]:
    """Orders of this thread go to one process that stays: each new one takes a third of a second to import what it
    sends with."""
    kept, here = SenderProcess(), threading.get_ident()

    def chosen() -> AbstractContextManager[SenderProcess]:
        return nullcontext(kept) if threading.get_ident() == here else SenderProcess()

    with mock.patch.object(delivery, "SenderProcess", chosen), mock.patch.object(request, "SenderProcess", chosen):
        try:
            yield
        finally:
            kept.kill()


@dataclass
class Mails:
    """`refuses`: what it says to a recipient instead of taking the mail for it."""

    port: int
    received: list[EmailMessage] = field(default_factory=list)
    refuses: dict[str, str] = field(default_factory=dict)

    async def handle_RCPT(self, server: SMTP, session: Session, envelope: Envelope, address: str, options: Any) -> str:
        if said := self.refuses.get(address):
            return said
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, server: SMTP, session: Session, envelope: Envelope) -> str:
        content = envelope.content
        assert isinstance(content, bytes)
        self.received.append(message_from_bytes(content, policy=policy.default))  # type: ignore[arg-type]
        return "250 OK"


@contextmanager
def smtp(mode: str = "insecure", tls: ssl.SSLContext | None = None, password: str = "") -> Iterator[Mails]:
    """`mode`: as in an address, and `tls` is what it proves itself by. `password`: without it nobody may send."""
    mails = Mails(free_port())
    more: dict[str, Any] = {"tls_context": tls, "require_starttls": True} if mode == "starttls" else {}
    if password:
        more |= {
            "auth_required": True,
            "auth_require_tls": mode == "starttls",
            "authenticator": lambda server, session, envelope, mechanism, said: AuthResult(
                success=said.password == password.encode(), handled=False
            ),
        }
    kind = Controller if mode != "ssl" else partial(Controller, ssl_context=tls)
    controller = kind(mails, hostname="127.0.0.1", port=mails.port, **more)
    controller.start()
    try:
        yield mails
    finally:
        controller.stop()


@dataclass
class Hooks:
    """`answers`: what to answer next, by status; 200 once there is none left. `hold`: requests wait for it. `drip`:
    answers never come to an end."""

    url: str = ""
    received: list[tuple[dict[str, str], Any, bytes]] = field(default_factory=list)
    answers: list[tuple[int, dict[str, str]]] = field(default_factory=list)
    hold: threading.Event | None = None
    drip: bool = False


@contextmanager
def http() -> Iterator[Hooks]:
    hooks = Hooks()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            hooks.received.append((dict(self.headers), json.loads(body), body))
            if hooks.hold:
                hooks.hold.wait(30)
            if hooks.drip:
                self.send_response(200)
                self.end_headers()
                with suppress(OSError):
                    while hooks.drip:
                        self.wfile.write(b".")
                        threading.Event().wait(0.05)
                return
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
