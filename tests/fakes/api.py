"""A real HTTP server on a loopback port that answers what a test tells it to, in the API's envelope."""

import json
import sys
import threading
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

API = "/api/v1"


@dataclass(frozen=True)
class Request:
    """`query` has the last value of each name, `queries` all of them."""

    method: str
    path: str
    queries: Mapping[str, list[str]]
    headers: Mapping[str, str]
    body: Any

    @property
    def query(self) -> dict[str, str]:
        return {name: values[-1] for name, values in self.queries.items()}


@dataclass(frozen=True)
class Reply:
    """`body` is sent as JSON, or as it is when it is bytes. `cut`: the connection breaks off right after `body`."""

    body: Any
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    cut: bool = False


DROP = Reply(b"", cut=True, status=0)
"""The connection is closed without a word."""

Answer = Reply | Callable[[Request], Reply]


def data(value: Any, status: int = 200) -> Reply:
    return Reply({"code": 200, "message": "OK", "data": value}, status)


def page(items: list[Any]) -> Callable[[Request], Reply]:
    """A list of the API: cut into the pages that are asked for."""

    def answer(request: Request) -> Reply:
        number, size = int(request.query.get("page", 1)), int(request.query.get("pageSize", 20))
        chosen = items[(number - 1) * size : number * size]
        return data({"items": chosen, "total": len(items), "page": number, "pageSize": size})

    return answer


def refused(status: int, code: str, *problems: tuple[str, str, str, str], **headers: str) -> Reply:
    """An error envelope; `problems` are (field, code, message, hint)."""
    errors = [dict(zip(("field", "error", "message", "hint"), problem, strict=True)) for problem in problems]
    body = {"code": status, "message": f"refused: {code}", "error": code, "errors": errors, "requestId": "req-1"}
    return Reply(body, status, {name.replace("_", "-"): value for name, value in headers.items()})


def event(kind: str, value: Any, event_id: str) -> bytes:
    return f"id: {event_id}\nevent: {kind}\ndata: {json.dumps(value, ensure_ascii=False)}\n\n".encode()


def stream(*parts: bytes, cut: bool = False) -> Reply:
    return Reply(b"".join(parts), headers={"Content-Type": "text/event-stream"}, cut=cut)


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exception(), ConnectionError):  # a client that goes away is no fault
            super().handle_error(request, client_address)


class FakeApi:
    """Answers of one address are given in turn; the last one again and again."""

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self._answers: dict[tuple[str, str], deque[Answer]] = defaultdict(deque)
        self._lock = threading.Lock()
        self._server = Server(("127.0.0.1", 0), self._handler())
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def on(self, method: str, path: str, *answers: Answer) -> None:
        with self._lock:
            self._answers[method, path] = deque(answers)

    def list_requests(self, method: str, path: str) -> list[Request]:
        with self._lock:
            return [request for request in self.requests if (request.method, request.path) == (method, path)]

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def _answer(self, request: Request) -> Reply:
        with self._lock:
            self.requests.append(request)
            answers = self._answers[request.method, request.path]
            if not answers:
                return refused(404, "NOT_FOUND", ("", "NOT_FOUND", f"no {request.method} {request.path}", ""))
            answer = answers.popleft() if len(answers) > 1 else answers[0]
        return answer(request) if callable(answer) else answer

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        fake = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle_any(self) -> None:
                length = int(self.headers.get("Content-Length") or 0)
                raw = self.rfile.read(length)
                parts = urlsplit(self.path)
                request = Request(
                    self.command,
                    parts.path.removeprefix(API),
                    parse_qs(parts.query),
                    dict(self.headers),
                    json.loads(raw) if raw else None,
                )
                self.send(fake._answer(request))

            do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = handle_any

            def send(self, reply: Reply) -> None:
                if reply.status == 0:
                    self.close_connection = True
                    return
                raw = reply.body if isinstance(reply.body, bytes) else json.dumps(reply.body).encode()
                self.send_response(reply.status)
                for name, value in {"Content-Type": "application/json", **reply.headers}.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(raw) + reply.cut))
                self.end_headers()
                self.wfile.write(raw)
                self.close_connection = reply.cut

            def log_message(self, *_: object) -> None:
                pass

        return Handler


@contextmanager
def serving() -> Iterator[FakeApi]:
    fake = FakeApi()
    try:
        yield fake
    finally:
        fake.close()
