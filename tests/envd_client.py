"""Talks to envd as the platform does."""

import json
import socket
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from fermi.engines.agent.hosts import EnvironmentRunReport
from fermi.engines.agent.hosts import HostedRun as KeptRun
from fermi.engines.environments import (
    EnvironmentBackend,
    EnvironmentHandle,
    EnvironmentPhase,
    EnvironmentSpec,
    EnvironmentStatus,
)
from fermi.envd import protocol
from fermi.jobs.errors import BackendError
from fermi.runner.run_names import parse_run_name
from tests.polling import until

HOST = "env-a.localhost:8000"
XSRF = "Cookie: _xsrf=a\r\nX-XSRFToken: a\r\n"


@dataclass
class Ran:
    code: int
    out: str
    err: str


class Kept:
    """One run of an environment."""

    def __init__(self, hosting: EnvironmentBackend, spec: EnvironmentSpec) -> None:
        self.hosting, self.spec = hosting, spec
        self.handle = EnvironmentHandle(spec.id, spec.run)

    def start(self, secrets: Mapping[str, str] | None = None) -> "Kept":
        self.hosting.start(self.hosting.render(self.spec), secrets or {})
        return self

    def read_status(self) -> EnvironmentStatus:
        return self.hosting.observe([self.handle])[self.handle.name]

    def until(self, phase: EnvironmentPhase) -> EnvironmentStatus:
        return until(lambda: (now := self.read_status()).phase is phase and now, what=f"{phase}: {self.log()[-2000:]}")

    def stop(self) -> EnvironmentStatus:
        def ended() -> Any:
            self.hosting.stop(self.handle, 10.0)
            return (now := self.read_status()).left is False and now

        return until(ended)

    def log(self) -> str:
        return self.hosting.logs(self.handle, 0).data.decode()

    def request(self, request: dict[str, Any]) -> dict[str, Any]:
        with self.hosting.dial(self.handle) as stream:
            return protocol.send_request(stream, request, 60)

    def open(self, request: dict[str, Any]) -> Any:
        """A stream behind the answer, once the service is up."""

        def opened() -> Any:
            stream = self.hosting.dial(self.handle)
            try:
                answer = protocol.send_request(stream, request, 60)
            except ConnectionResetError:  # of a keeper that is killed its socket goes last
                return None
            assert answer["ok"] or answer["code"] == "SERVICE_STARTING", (answer, self.log())
            stream.settimeout(60)
            return answer["ok"] and stream

        return until(opened)

    def run(self, *command: str, given: bytes = b"", **more: Any) -> Ran:
        stream = self.open({"open": "exec", "command": list(command) or None, **more})
        with suppress(BrokenPipeError):  # it has ended without reading
            for start in range(0, len(given), 1 << 16):
                stream.sendall(protocol.encode_frame(protocol.IN, given[start : start + (1 << 16)]))
            stream.sendall(protocol.encode_control({"end": True}))
        return ran(stream)

    def http(self, method: str, path: str, body: str = "", door: str = "jupyter") -> tuple[int, bytes]:
        with self.open({"open": "port", "door": door}) as stream:
            head = f"{method} {path} HTTP/1.0\r\nHost: {HOST}\r\n{XSRF}Content-Length: {len(body)}\r\n\r\n{body}"
            stream.sendall(head.encode())
            answer = b"".join(iter(lambda: stream.recv(1 << 16), b""))
        top, _, rest = answer.partition(b"\r\n\r\n")
        return int(top.split()[1]), rest

    def json(self, method: str, path: str, body: str = "") -> Any:
        status, answer = self.http(method, path, body)
        assert status < 300, answer
        return json.loads(answer) if answer else None


class Hosts:
    """A host that keeps environments here, as its agent would."""

    def __init__(self, kept_here: EnvironmentBackend) -> None:
        self.hosting, self.status, self.running = kept_here, "online", dict[str, str]()
        self.streams: list[socket.socket] = []

    def kept(self, environments: Collection[str]) -> Mapping[str, KeptRun]:
        return {key: KeptRun(run, "nlp", "training:1") for key, run in self.running.items() if key in environments}

    def channel(self, name: str) -> socket.socket:
        if self.status == "lost":
            raise BackendError("ENVIRONMENT_AWAY", environment=name)
        environment, number = parse_run_name(name)
        self.streams.append(self.hosting.dial(EnvironmentHandle(environment, int(number))))
        return self.streams[-1]

    def lose(self) -> None:
        """The host is not heard any more; what runs there goes on."""
        self.status = "lost"
        for stream in self.streams:
            with suppress(OSError):
                stream.shutdown(socket.SHUT_RDWR)

    def runs(self, names: Collection[str]) -> Mapping[str, EnvironmentRunReport]:
        seen = EnvironmentStatus(EnvironmentPhase.RUNNING, True)
        return {
            run: EnvironmentRunReport("gn1", self.status, False, seen) for run in self.running.values() if run in names
        }  # type: ignore[arg-type]


def frames(stream: Any) -> Any:
    """To the end: of a connection on which a command left something unread, the kernel says that it was reset, once all
    that was said has been read."""
    rest = protocol.FrameDecoder()
    with suppress(ConnectionResetError):
        while data := stream.recv(1 << 16):
            yield from rest.feed(data)


def ran(stream: Any) -> Ran:
    said = {protocol.OUT: bytearray(), protocol.ERR: bytearray(), protocol.CONTROL: bytearray()}
    for channel, payload in frames(stream):
        said[channel] += payload
    code = json.loads(said[protocol.CONTROL])["exit"]
    return Ran(code, said[protocol.OUT].decode(errors="replace"), said[protocol.ERR].decode(errors="replace"))
