"""The web process's memory of the workers, and heartbeats in front of Django: held, answered, passed on."""

import asyncio
import json
import threading
from collections.abc import Mapping
from contextlib import nullcontext
from functools import partial
from typing import Any

import pytest
from django.db import connection, transaction

from apps.accounts.models import Project
from apps.clusters.models import AvailabilityZone, Cluster, DevEnvironment
from apps.common.bounds import HEARTBEAT_PATH
from apps.common.clock import now
from apps.common.errors import ProblemsError
from apps.common.request_shapes import parse_body
from apps.telemetry import reader
from apps.telemetry.writer import TelemetryWriter
from apps.workers import revisions
from apps.workers.api.serializers import WorkerHeartbeatRequest
from apps.workers.engine.store import DatabaseStore
from apps.workers.heartbeat.cache import HeartbeatCache
from apps.workers.heartbeat.endpoint import HeartbeatEndpoint
from apps.workers.heartbeat.schema import HeartbeatEntry, parse_heartbeat
from apps.workers.heartbeat.telemetry import TelemetryCollector
from apps.workers.models import Report, Worker
from apps.workers.tokens import hash_token
from fermi.engines import failure_cause
from fermi.engines.agent.store import RankOrder
from fermi.runner.run_names import parse_run_name

pytestmark = [pytest.mark.database, pytest.mark.django_db(transaction=True)]


def add(*ids: str) -> None:
    project, _ = Project.objects.get_or_create(name="one")
    with transaction.atomic():
        revision = revisions.take_next_revision()
        for key in ids:
            node, _, number = key.partition("-")
            worker = Worker.objects.create(
                pk=key, node=node, number=int(number), project=project, machine=node, digest=hash_token(key),
                generation=revision,
            )  # fmt: skip
            Report.objects.create(worker=worker, at=now())


def beat(worker: str, sequence: int = 1, **changes: Any) -> HeartbeatEntry:
    values: dict[str, Any] = {"incarnation": "first", "generation": 0, "process": None, "usage": {}, "token": worker}
    return HeartbeatEntry(worker=worker, sequence=sequence, **{**values, **changes})


def order(name: str, *workers: str) -> None:
    task, attempt = parse_run_name(name)
    body = {"name": name, "digest": "d", "spec": {}, "files": {}}
    rows = [RankOrder(worker, rank, 0, "n", "d", body) for rank, worker in enumerate(workers)]
    DatabaseStore().put(name, task, int(attempt), rows)


def test_a_heartbeat_takes_no_query_and_a_refresh_a_constant_number(django_assert_max_num_queries: Any) -> None:
    add(*(f"gn6-{number}" for number in range(300)))
    cache = HeartbeatCache()
    cache.refresh()
    assert len(cache) == 300
    beats = [beat(f"gn6-{number}", usage={"cpuPercent": 1.0}) for number in range(300)]
    with django_assert_max_num_queries(0):
        assert cache.strangers(beats) == []
        assert all(answer["error"] is None for answer in cache.hear(beats))
    with django_assert_max_num_queries(1):
        cache.refresh()
    order("task-x-1", "gn6-7")
    with django_assert_max_num_queries(3):
        cache.refresh()
    assert cache.answers([beat("gn6-7")])[0]["order"]["name"] == "task-x-1"
    with django_assert_max_num_queries(5):  # with what opens and ends the transaction
        assert cache.flush() == 300
    assert Report.objects.filter(sequence=1).count() == 300


def test_a_worker_deleted_by_another_process_is_forgotten() -> None:
    add("gn6-0", "gn6-1")
    cache = HeartbeatCache()
    cache.refresh()
    with transaction.atomic():
        revisions.take_next_revision()
        Worker.objects.filter(pk="gn6-0").delete()
    cache.refresh()
    assert cache.strangers([beat("gn6-0"), beat("gn6-1")]) == ["gn6-0"]


def test_unstored_reports_are_stored_the_next_time(monkeypatch: pytest.MonkeyPatch) -> None:
    add("gn6-0")
    order("task-x-1", "gn6-0")
    cache = HeartbeatCache()
    cache.refresh()
    cache.hear([beat("gn6-0", process={"name": "task-x-1", "state": "exited", "exitCode": 3, "left": False})])
    assert cache.urgent

    def fail() -> None:
        raise RuntimeError("the database is away")

    with monkeypatch.context() as broken:
        broken.setattr("apps.workers.heartbeat.cache.record_listening", fail)
        with pytest.raises(RuntimeError):
            cache.flush()
    assert Report.objects.get().sequence == -1
    cache.flush()
    assert Report.objects.get().sequence == 1
    assert DatabaseStore().attempts(["task-x-1"])["task-x-1"].reports[0].exit_code == 3


@pytest.mark.parametrize(
    "body",
    [
        None, [], {}, {"workers": {}}, {"workers": [1]}, {"workers": [{"id": 1}]}, {"workers": [], "waitSeconds": "1"},
        {"workers": [{"id": "gn6-0", "process": {"name": "", "state": "running"}}]},
        {"workers": [{"id": "gn6-0", "process": {"name": "x", "state": "dancing"}}]},
        {"workers": [{"id": "gn6-0", "process": {"name": "x", "state": "exited", "exitCode": "1"}}]},
        *({"workers": [{"id": "gn6-0", "process": {"name": "x", "state": "exited", "cause": cause}}]} for cause in (
            "DISK_FULL", {"path": []}, {"path": "\ud800"}, {"path": "\0"}, {"path": "x" * 5000}, {"port": 1.5},
            {"why": 5}, {"why": "x" * 5000})),
        {"workers": [{"id": "gn6-0", "process": {"name": "x", "state": "running", "stillSince": "long"}}]},
        {"workers": [{"id": "gn6-0", "sequence": True}]},
        {"workers": [{"id": "gn6-0", "usage": 1}]},
        {"workers": [{"id": "gn6-0", "usage": {"cpuPercent": "1"}}]},
        {"workers": [{"id": "gn6-0", "usage": {"ports": 29500}}]},
        {"workers": [{"id": "gn6-0", "usage": {"ports": [{"holder": "pid 7 (nc)"}]}}]},
        {"workers": [{"id": "gn6-0", "usage": {"ports": [{"port": 29500, "holder": "a\0b"}]}}]},
        {"workers": [{"id": "gn6-0", "process": {"name": "a\0b", "state": "running"}}]},
        {"workers": [{"id": "gn6-0", "process": {"name": "x", "state": "running", "pid": 2**31}}]},
        {"workers": [], "waitSeconds": -1}, {"workers": [], "waitSeconds": 1e9},
    ],
)  # fmt: skip
def test_a_malformed_heartbeat_is_not_parsed(body: Any) -> None:
    with pytest.raises(ValueError):
        parse_heartbeat(body)


@pytest.mark.parametrize("name", ["code", "path", "holder"])
@pytest.mark.parametrize(("word", "is_one"), [(None, True), ("x", True), ("", False), (" \n", False)])
def test_cause_codes_are_validated_as_in_the_schema(name: str, word: Any, is_one: bool) -> None:
    process = {"name": "x", "state": "exited", "cause": {name: word}}
    entry = {"id": "gn6-0", "token": "t", "incarnation": "i", "sequence": 1, "generation": 1, "process": process}
    for judge in (parse_heartbeat, partial(parse_body, WorkerHeartbeatRequest)):
        with nullcontext() if is_one else pytest.raises((ValueError, ProblemsError)):
            judge({"workers": [entry]})


@pytest.mark.parametrize(
    "cause",
    [
        {"code": "PROCESS_BOUND_REACHED", "processes": 70, "threads": 90, "processBound": 64, "threadBound": 512},
        {"code": "OPEN_FILE_BOUND_REACHED", "files": 700, "fileBound": 600},
        {"code": "MEMORY_BOUND_REACHED", "used": "41.2 GiB", "bound": "40 GiB"},
        {"code": "DISK_BOUND_REACHED", "size": "41 GiB", "bound": "40 GiB", "wrote": "3 GiB", "seconds": 9,
         "path": "/d"},
        {"code": "DISK_RESERVE_REACHED", "path": "/d", "wrote": "3 GiB", "seconds": 9, "freeMiB": 1, "totalMiB": 64,
         "reserveMiB": 3},
        {"code": "DISK_WITHOUT_ROOM", "path": "/d", "freeMiB": 1, "totalMiB": 64, "reserveMiB": 3},
    ],
    ids=lambda cause: cause["code"],
)  # fmt: skip
def test_all_fields_of_a_bound_are_kept(cause: dict[str, Any]) -> None:
    """And fills the text of the reason: the tests' own `Cause` raises where something is missing."""
    said = {**cause} if cause["code"] == "DISK_WITHOUT_ROOM" else {**cause, "task": "task-x", "rank": 0}
    process = {"name": "x", "state": "exited", "cause": said}
    entry = {"id": "gn6-0", "token": "t", "incarnation": "i", "sequence": 1, "generation": 1, "process": process}
    parse_body(WorkerHeartbeatRequest, {"workers": [entry]})
    _, [beat] = parse_heartbeat({"workers": [entry]})
    assert beat.process is not None
    assert beat.process["cause"] == said
    assert failure_cause.build_runner_cause(beat.process["cause"], {"nodeRank": 0, "node": "gn6"}) is not None


def test_unknown_fields_of_a_newer_agent_are_dropped() -> None:
    """One word that the database cannot hold would keep all workers' reports from being stored."""
    said = {"name": "x", "state": "running", "more": ["a\0b"]}
    entry = {
        "id": "gn6-0", "token": "t", "incarnation": "i", "sequence": 1, "generation": 1, "process": said,
        "usage": {"cpuPercent": 1, "more": {"a": "\0"}, "ports": [{"port": 29500, "holder": None, "more": "\0"}]},
    }  # fmt: skip
    _, [beat] = parse_heartbeat({"workers": [entry]})
    assert (beat.process, beat.usage) == (
        {"name": "x", "state": "running"},
        {"cpuPercent": 1, "ports": [{"port": 29500, "holder": None}]},
    )


def test_malformed_rank_reports_are_ignored() -> None:
    """An older agent says none of it."""
    entry = {"id": "gn6-0", "token": "t", "incarnation": "i", "sequence": 1, "generation": 1, "usage": {}}
    said = {"name": "x", "state": "running", "error": {"type": "E\0", "line": -1}, "stalled": [], "kill": None,
            "course": {"last_step": 80, "began_at": "now", "trainer": [], "more": 1}}  # fmt: skip
    pulse = {"rank": 0, "at": 9.0, "step": 4, "waiting": 12, "more": "\0"}
    _, [beat, old] = parse_heartbeat(
        {"workers": [{**entry, "process": said, "pulse": pulse}, {**entry, "process": None}]}
    )
    assert beat.process is not None
    assert {name: value for name, value in beat.process["error"].items() if value} == {
        "type": "E\N{REPLACEMENT CHARACTER}"
    }
    assert set(beat.process) == {"name", "state", "error", "course"}
    assert beat.process["course"] == {"last_step": 80}
    assert {name: value for name, value in (beat.pulse or {}).items() if value} == {"at": 9.0, "step": 4}
    assert (old.process, old.pulse) == (None, None)


def test_package_messages_are_sanitized_for_the_database() -> None:
    """pip prints whatever it likes: no word of it may keep a host's reports out."""
    failed = {"code": "CODE_PACKAGES_FAILED", "file": "requirements.txt", "why": "\0no \ud800compiler", "expected": ""}
    doing = {"code": "CODE_PACKAGES_PREPARING", "file": None, "said": "Collecting\0numpy", "more": "\0"}
    process = {"name": "x", "state": "exited", "cause": failed, "doing": doing}
    entry = {"id": "gn6-0", "token": "t", "incarnation": "i", "sequence": 1, "generation": 1, "process": process}
    _, [beat] = parse_heartbeat({"workers": [entry]})
    assert beat.process is not None
    assert beat.process["cause"] == {**failed, "why": "\N{REPLACEMENT CHARACTER}no ?compiler"}
    assert beat.process["doing"] == {
        "code": "CODE_PACKAGES_PREPARING", "said": "Collecting\N{REPLACEMENT CHARACTER}numpy"
    }  # fmt: skip
    for odd in (5, [], "x", {"code": 5}):
        _, [beat] = parse_heartbeat(
            {"workers": [{**entry, "process": {"name": "x", "state": "starting", "doing": odd}}]}
        )
        assert beat.process == {"name": "x", "state": "starting"}


class Server:
    """The front with a Django behind it that only says that it was asked."""

    def __init__(self) -> None:
        self.passed_on: list[bytes] = []
        self.front = HeartbeatEndpoint(self._django)
        self.front._started = True  # the keeper's threads are for a process that serves
        self.cache = self.front._cache

    async def post(self, body: Any, path: str = HEARTBEAT_PATH) -> Any:
        sent: list[Mapping[str, Any]] = []
        raw = [body if isinstance(body, bytes) else json.dumps(body).encode()]

        async def receive() -> Mapping[str, Any]:
            return {"type": "http.request", "body": raw.pop(), "more_body": False}

        async def send(message: Mapping[str, Any]) -> None:
            sent.append(message)

        scope = {"type": "http", "method": "POST", "path": path, "headers": [(b"accept-language", b"en")]}
        await self.front(scope, receive, send)
        return json.loads(sent[-1]["body"])["data"] if sent else None

    async def _django(self, scope: Any, receive: Any, send: Any) -> None:
        self.passed_on.append((await receive())["body"])

    @staticmethod
    def body(*workers: str, wait: float = 0.0, generation: int = 0) -> dict[str, Any]:
        said = [
            {"id": key, "token": key, "incarnation": "first", "sequence": 1, "generation": generation,
             "process": None, "usage": {}}
            for key in workers
        ]  # fmt: skip
        return {"waitSeconds": wait, "workers": said}


def test_a_new_worker_is_known_at_once_and_an_unknown_one_refused() -> None:
    add("gn6-0")
    data = asyncio.run(Server().post(Server.body("gn6-0", "gn9-0")))
    assert data["intervalSeconds"] == 5.0
    assert [item["error"] and item["error"]["code"] for item in data["workers"]] == [None, "WORKER_UNKNOWN"]
    assert data["workers"][1]["error"]["message"] == "There is no worker gn9-0"


def test_other_requests_are_passed_to_django_unchanged() -> None:
    server = Server()
    assert asyncio.run(server.post(b"{nonsense")) is None
    assert asyncio.run(server.post(b"{}", path="/api/v1/workers")) is None
    assert server.passed_on == [b"{nonsense", b"{}"]


def test_a_held_heartbeat_is_answered_when_there_is_news() -> None:
    add("gn6-0")
    server = Server()
    server.cache.refresh()
    known = Worker.objects.get().generation

    async def held() -> Any:
        asking = asyncio.create_task(server.post(Server.body("gn6-0", wait=60.0, generation=known)))
        while not server.front._waiting:
            await asyncio.sleep(0)
        assert not asking.done()

        def start() -> None:  # another process orders; this one's keeper looks
            order("task-x-1", "gn6-0")
            server.cache.refresh()
            connection.close()

        thread = threading.Thread(target=start)
        thread.start()
        answer = await asking
        await asyncio.to_thread(thread.join)
        return answer

    [item] = asyncio.run(held())["workers"]
    assert item["order"]["name"] == "task-x-1"
    assert not server.front._waiting


def test_a_heartbeat_with_news_is_not_held() -> None:
    add("gn6-0")
    order("task-x-1", "gn6-0")
    server = Server()
    server.cache.refresh()
    [item] = asyncio.run(server.post(Server.body("gn6-0", wait=60.0)))["workers"]
    assert item["order"]["name"] == "task-x-1"


def test_a_heartbeat_is_held_no_longer_than_requested(settings: Any) -> None:
    add("gn6-0")
    settings.WORKER_HEARTBEAT_SECONDS = 0.05
    server = Server()
    server.cache.refresh()
    known = Worker.objects.get().generation
    [item] = asyncio.run(server.post(Server.body("gn6-0", wait=60.0, generation=known)))["workers"]
    assert (item["order"], item["error"]) == (None, None)
    assert not server.front._waiting


def test_usage_of_hosts_and_ranks_becomes_series() -> None:
    add("gn6-0", "gn6-1", "gn7-0")
    project = Project.objects.get()
    cluster = Cluster.objects.create(pk="workers", name="workers", backend="agent")
    zone = AvailabilityZone.objects.create(name="a")
    for key, members in (("env-one", ["gn6-1"]), ("env-two", ["gn6-0"])):
        DevEnvironment.objects.create(pk=key, name=key, project=project, cluster=cluster, zone=zone)
        Worker.objects.filter(pk__in=members).update(environment=key)
    moment = now().timestamp()
    values = {"cpu": 40, "gpu:0": 80, "rank_cpu:3": 150, "rank_cpu:9": 1, "nonsense:1": 5, "power:0": "much"}
    process = {"name": "task-x-2", "rank": 3, "state": "running"}

    def said(worker: str, at: float, values: Any, process: Any = None) -> HeartbeatEntry:
        item = {"id": worker, "token": worker, "process": process, "telemetry": {"at": at, "values": values}}
        return parse_heartbeat({"workers": [item]})[1][0]

    clock = [moment]
    used = TelemetryCollector(TelemetryWriter(lambda: clock[0]))
    told, nothing = {"error": None, "order": {"name": "task-x-2"}}, {"error": None, "order": None}
    elsewhere = {"name": "task-y-1", "rank": 0, "state": "running"}
    used.hear(
        [
            (said("gn6-0", moment, values, process), told),
            (said("gn6-1", moment, {"gpu:0": 10, "rank_cpu:0": 7}, elsewhere), nothing),
            (said("gn7-0", 1.0, {}), told),
            (said("gn6-1", moment, {"gpu:0": 99}), {"error": {"code": "WORKER_TOKEN_INVALID"}, "order": None}),
        ]
    )
    used.flush()
    clock[0] += 30
    used.flush()
    found = reader.read_newest(
        ["env:env-one", "env:env-two", "worker:gn6-0", "task:task-x", "task:task-x-2", "task:task-y"]
    )
    assert {subject: dict(one.values) for subject, one in found.items()} == {
        "env:env-one": {"gpu:0": 10, "cpu": 40},  # the host is every environment's that has workers there
        "env:env-two": {"gpu:0": 80, "cpu": 40},
        "worker:gn6-0": {"gpu:0": 80, "rank_cpu:3": 150},
        "task:task-x": {"rank_cpu:3": 150},  # of its own rank, and no other
    }
