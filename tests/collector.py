"""A collector of OpenTelemetry's: what it is sent over HTTP, read with the packages' own classes."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Status


@dataclass(frozen=True)
class Received:
    name: str
    trace: str
    span: str
    parent: str
    begins: int
    ends: int
    attributes: dict[str, Any]
    error: str


@dataclass
class Collector:
    """`answers`: statuses of the next requests; then 200."""

    url: str = ""
    services: set[str] = field(default_factory=set)
    spans: list[Received] = field(default_factory=list)
    answers: list[int] = field(default_factory=list)
    requests: int = 0

    def receive(self, body: bytes) -> None:
        for group in ExportTraceServiceRequest.FromString(body).resource_spans:
            self.services |= {one.value.string_value for one in group.resource.attributes if one.key == "service.name"}
            for scope in group.scope_spans:
                self.spans += [received(span) for span in scope.spans]

    def one(self, name: str, **attributes: Any) -> Received:
        wanted = {f"fermi.{key}": value for key, value in attributes.items()}
        (found,) = [span for span in self.spans if span.name == name and wanted.items() <= span.attributes.items()]
        return found


def received(span: Any) -> Received:
    attributes = {one.key: getattr(one.value, one.value.WhichOneof("value")) for one in span.attributes}
    ids = span.trace_id.hex(), span.span_id.hex(), span.parent_span_id.hex()
    failed = span.status.code == Status.STATUS_CODE_ERROR
    times = span.start_time_unix_nano, span.end_time_unix_nano
    return Received(span.name, *ids, *times, attributes, span.status.message if failed else "")


@contextmanager
def collecting() -> Iterator[Collector]:
    collector = Collector()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            collector.requests += 1
            status = collector.answers.pop(0) if collector.answers else 200
            if status == 200:
                assert self.path == "/v1/traces"
                collector.receive(body)
            self.send_response(status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *about: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    collector.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield collector
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
