"""The platform as worker agents see it, in this process: a Store in memory, and the four requests over HTTP.

Not a double of the platform's own answers to them (the end-to-end tests have those), but a place where a test can lose
requests, answers, or half of a body: `cut(request)` may say how.
"""

import contextlib
import itertools
import json
import select
import socket
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from fermi.agent.agent import Agent
from fermi.agent.settings import Settings
from fermi.engines.agent.store import AttemptReports, RankOrder, RankReport, WorkerStatus
from fermi.jobs.errors import BackendError
from tests.fakes import upgrades
from tests.polling import until

INTERVAL_SECONDS = 1.0
HELD_SECONDS = 1.0
CHANNEL_SECONDS = 10.0
_channels = itertools.count(1)


@dataclass
class Ordered:
    task_id: str
    number: int
    orders: dict[str, RankOrder] = field(default_factory=dict)
    stop: dict[str, Any] | None = None
    reports: dict[str, RankReport] = field(default_factory=dict)
    pulses: dict[str, Any] = field(default_factory=dict)


@dataclass
class Known:
    token: str
    generation: int = 1
    order: str = ""
    status: WorkerStatus = "online"
    heartbeats: int = 0
    channels: dict[str, tuple[str, socket.socket]] = field(default_factory=dict)


class MemoryStore:
    def __init__(self) -> None:
        self.changed = threading.Condition(threading.RLock())
        self.known: dict[str, Known] = {}
        self.ordered: dict[str, Ordered] = {}
        self.taken: set[str] = set()
        self.secrets: dict[str, str] = {}  # what the platform looks up when an order is fetched
        self.registrations = 0
        self.listened: dict[int, str] = {}  # on whichever node

    def put(self, name: str, task_id: str, attempt: int, orders: Sequence[RankOrder]) -> None:
        with self.changed:
            if name in self.ordered:
                return
            if missing := [order.worker for order in orders if order.worker not in self.known]:
                raise BackendError("WORKER_UNKNOWN", permanent=True, workers=", ".join(missing))
            reports = {o.worker: RankReport(o.worker, o.rank, o.node_rank, o.node) for o in orders}
            self.ordered[name] = Ordered(task_id, attempt, {o.worker: o for o in orders}, None, reports)
            for order in orders:
                self.known[order.worker].order = name
            self._raise(order.worker for order in orders)

    def attempts(self, names: Collection[str]) -> Mapping[str, AttemptReports]:
        with self.changed:
            found = {name: self.ordered[name] for name in names if name in self.ordered}
            return {name: AttemptReports(one.stop is not None, self._reports(one)) for name, one in found.items()}

    def pulses(self, name: str) -> Sequence[Mapping[str, Any]]:
        one = self.ordered.get(name)
        return [pulse for pulse in one.pulses.values() if pulse] if one else []

    def stop(self, name: str, task_id: str, attempt: int, grace_seconds: float) -> None:
        with self.changed:
            one = self.ordered.setdefault(name, Ordered(task_id, attempt))
            kill_at = time.time() + grace_seconds
            if one.stop is None or kill_at < one.stop["killAt"]:
                one.stop = {"name": name, "graceSeconds": grace_seconds, "killAt": kill_at}
                self._raise(one.orders)

    def delete_attempt(self, name: str) -> None:
        with self.changed:
            if one := self.ordered.pop(name, None):
                had = [worker for worker in one.orders if self.known[worker].order == name]
                for worker in had:
                    self.known[worker].order = ""
                self._raise(had)

    def names(self) -> Sequence[tuple[str, str, int]]:
        with self.changed:
            return [(name, one.task_id, one.number) for name, one in self.ordered.items()]

    def ports(self, node: str) -> Mapping[int, str]:
        return self.listened

    def workers(self) -> Mapping[str, WorkerStatus]:
        return {worker: one.status for worker, one in self.known.items()}

    def channel(self, name: str, worker: str) -> socket.socket:
        """Told with heartbeats until its agent comes."""
        ours, theirs = socket.socketpair()
        with self.changed:
            if self.known[worker].order != name:
                raise LookupError(worker)
            key = f"channel-{next(_channels)}"
            self.known[worker].channels[key] = (name, theirs)
            self._raise([worker])
            if self.changed.wait_for(lambda: key not in self.known[worker].channels, CHANNEL_SECONDS):
                return ours
            del self.known[worker].channels[key]
        raise TimeoutError

    def watch(self, stop: threading.Event, on_change: Callable[[str], None]) -> None:
        stop.wait()

    def register(self, worker: str) -> str:
        with self.changed:
            self.registrations += 1
            self.known.setdefault(worker, Known(f"secret of {worker}"))
            return self.known[worker].token

    def rotate(self, worker: str) -> None:
        with self.changed:
            self.known[worker].token = f"another {self.known[worker].token}"
            self._raise([worker])

    def take_over(self, worker: str) -> None:
        """Another host registers it."""
        with self.changed:
            self.known[worker].token = "the other's"
            self.taken.add(worker)
            self._raise([worker])

    def release_worker(self, worker: str) -> None:
        with self.changed:
            self.taken.discard(worker)

    def hear(self, said: Mapping[str, Any]) -> dict[str, Any]:
        """The answer for one worker."""
        with self.changed:
            worker = self.known.get(said["id"])
            if worker is None or worker.token != said["token"]:
                return {"id": said["id"], "error": {"code": "WORKER_TOKEN_INVALID", "message": "not known"}}
            worker.heartbeats += 1
            process = said["process"]
            if process and (one := self.ordered.get(process["name"])) and said["id"] in one.reports:
                one.reports[said["id"]] = replace(
                    one.reports[said["id"]], state=process["state"], pid=process["pid"], left=process["left"],
                    exit_code=process["exitCode"], ended_at=process["endedAt"],
                    stop_requested=process["asked"], still_since=process["stillSince"], cause=process["cause"] or {},
                    error=process.get("error"), stalled=process.get("stalled"), kill=process.get("kill"),
                    doing=process["doing"],
                )  # fmt: skip
                one.pulses[said["id"]] = said.get("pulse")
            channels = [{"id": key, "run": run} for key, (run, _) in worker.channels.items()]
            hosted = {"runs": [], "removed": [], "channels": channels} if channels else None
            wanted = {**self._wanted(said["id"]), "hosted": hosted}
            return {"id": said["id"], "generation": worker.generation, **wanted, "error": None}

    def wait_for_news(self, said: Sequence[Mapping[str, Any]], seconds: float) -> None:
        def news() -> bool:
            return any(
                (one := self.known.get(worker["id"])) and one.generation != worker["generation"] for worker in said
            )

        with self.changed:
            self.changed.wait_for(news, min(seconds, HELD_SECONDS))

    def order(self, worker: str) -> dict[str, Any]:
        with self.changed:
            one = self.known[worker]
            body = self.ordered[one.order].orders[worker].body
            return {**body, "generation": one.generation, "secrets": self.secrets}

    def _reports(self, one: Ordered) -> tuple[RankReport, ...]:
        return tuple(replace(report, status=self.known[report.worker].status) for report in one.reports.values())

    def _wanted(self, worker: str) -> dict[str, Any]:
        one = self.ordered.get(self.known[worker].order)
        if one is None:
            return {"order": None, "stop": None}
        order = one.orders[worker]
        short = {"name": self.known[worker].order, "taskId": one.task_id, "attempt": one.number, "rank": order.rank,
                 "digest": order.digest}  # fmt: skip
        return {"order": short, "stop": one.stop}

    def _raise(self, workers: Any) -> None:
        for worker in workers:
            self.known[worker].generation += 1
        self.changed.notify_all()


class Platform(ThreadingHTTPServer):
    """`cut(method, path)` answers "before" (the request is lost), "after" (its answer is), a number of bytes of the
    body that still arrive, or "" for none of it."""

    daemon_threads = True

    def __init__(self, store: MemoryStore, logs: Path) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.store, self.logs = store, logs
        self.cut: Callable[[str, str], str | int] = lambda method, path: ""
        self.heartbeats: list[dict[str, Any]] = []
        self.facts: list[dict[str, Any]] = []  # of each registration

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A connection that a test cut off."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Platform

    def log_message(self, *_: Any) -> None:
        pass

    def do_GET(self) -> None:
        parts = self.path.split("/")
        if parts[-2] == "channels":
            return self._channel(parts[-3], parts[-1])
        return self._answer("GET")

    def do_POST(self) -> None:
        self._answer("POST")

    def do_PUT(self) -> None:
        self._answer("PUT")

    def _answer(self, method: str) -> None:
        cut = self.server.cut(method, self.path)
        length = int(self.headers.get("Content-Length") or 0)
        body = self.rfile.read(min(length, cut) if isinstance(cut, int) else length)
        if cut != "before":
            status, data = self._do(method, body)
        if cut != "":
            self.close_connection = True
            self.connection.close()
            return
        text = json.dumps(data).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def _do(self, method: str, body: bytes) -> tuple[int, dict[str, Any]]:
        url = urlsplit(self.path)
        if not url.path.startswith("/api/v1/workers/"):
            return 404, {}
        parts = url.path.removeprefix("/api/v1/workers/").split("/")
        store = self.server.store
        if parts == ["register"]:
            if self.headers["Authorization"] != "Bearer join":
                return 401, {"error": "TOKEN_INVALID", "message": "the token is not known"}
            self.server.facts.append(json.loads(body)["facts"])
            workers = [worker["id"] for worker in json.loads(body)["workers"]]
            if store.taken & {*workers}:
                return 409, {"error": "WORKER_ID_TAKEN", "message": "another host has it"}
            return 201, {"data": {"workers": [{"id": worker, "token": store.register(worker)} for worker in workers]}}
        if parts == ["heartbeat"]:
            said = json.loads(body)
            self.server.heartbeats.append(said)
            for worker in said["workers"]:
                store.hear(worker)
            store.wait_for_news(said["workers"], said["waitSeconds"])
            answers = [store.hear(worker) for worker in said["workers"]]
            return 200, {"data": {"intervalSeconds": INTERVAL_SECONDS, "workers": answers}}
        if self.headers["Authorization"] != f"Bearer {store.known[parts[0]].token}":
            return 401, {"error": "TOKEN_INVALID", "message": "the token is not known"}
        if parts[1] == "order":
            return 200, {"data": store.order(parts[0])}
        return self._append(self.server.logs / "/".join(parts[2:]), int(parse_qs(url.query)["offset"][0]), body)

    def _channel(self, worker: str, key: str) -> None:
        """A stream from the agent's host, to who waits for it."""
        store = self.server.store
        with store.changed:
            _, stream = store.known[worker].channels.pop(key)
            store.changed.notify_all()
        self.close_connection = True
        talk = upgrades.upgrade(self)
        with stream, contextlib.suppress(OSError):
            while True:
                ready, _, _ = select.select([talk.outside, stream], [], [])
                if talk.outside in ready:
                    for message in talk.messages():
                        stream.sendall(message)
                if stream in ready:
                    if not (data := stream.recv(1 << 16)):
                        return talk.close()
                    talk.send(data)
        return None

    def _append(self, stem: Path, offset: int, body: bytes) -> tuple[int, dict[str, Any]]:
        path = stem.with_name(stem.name + ".log")
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab") as file:
            size = file.tell()
            if offset > size:
                return 409, {"error": "LOG_OFFSET_BEYOND", "message": "beyond the end", "acknowledged": size}
            file.write(body[size - offset :])
            return 200, {"data": {"acknowledged": file.tell()}}


@contextmanager
def serving(logs: Path) -> Iterator[Platform]:
    platform = Platform(MemoryStore(), logs)
    thread = threading.Thread(target=platform.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield platform
    finally:
        platform.shutdown()
        thread.join()
        platform.server_close()


@contextmanager
def agent(platform: Platform, state: Path, **settings: Any) -> Iterator[Agent]:
    """One in this process, once it has been heard of. Its ranks may write beside its state, as these tests' do."""
    given = {"token": "join", "emulate": True, "warm": False, "confine": False, "containers": False, **settings}
    running = Agent(Settings(server=platform.url, state=str(state), **given))
    thread = threading.Thread(target=running.run)
    thread.start()
    try:
        until(lambda: all(worker.desired for worker in running.workers), what="a heartbeat is answered")
        yield running
    finally:
        running.stop()
        thread.join()
        running.close()
