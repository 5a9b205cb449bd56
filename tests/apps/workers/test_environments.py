"""Dev environments on workers' hosts: what the platform remembers, and how a stream from a host reaches who dials."""

import asyncio
import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from apps.accounts.models import Project
from apps.clusters import selectors as clusters
from apps.clusters.models import DevEnvironment, Lease
from apps.common.clock import now
from apps.workers.engine import channels, log_upload
from apps.workers.engine.environment_store import read_run_body
from apps.workers.heartbeat.cache import HeartbeatCache
from apps.workers.heartbeat.channels import AgentChannelsApp
from apps.workers.heartbeat.schema import parse_heartbeat
from apps.workers.models import Channel, Listening, Report, Worker
from apps.workers.services import environments
from apps.workers.tokens import hash_token
from fermi.engines import logfiles
from fermi.engines.agent import environments as hosting
from fermi.engines.environments import EnvironmentHandle, EnvironmentPhase, EnvironmentSpec, EnvironmentStatus
from fermi.jobs.errors import BackendError
from fermi.jobs.run_location import RunLocations
from fermi.jobs.spec import Cause, JobSpec, RunLocation
from fermi.planning import plugins
from fermi.schema import serialization

pytestmark = [pytest.mark.database, pytest.mark.django_db(transaction=True)]
IDS = ["gn6-0", "gn6-1", "gn7-0"]


@pytest.fixture(autouse=True)
def environment(transactional_db: None) -> DevEnvironment:
    """One that is to be made, beside those of the nodes."""
    project, moment = Project.objects.create(pk="one", name="one"), now()
    Listening.objects.create(pk=1, since=moment - timedelta(hours=1), heard_at=moment)
    for key in IDS:
        node, _, number = key.partition("-")
        worker = Worker.objects.create(
            pk=key, node=node, number=int(number), gpu=int(number), project=project, machine=node,
            digest=hash_token(key), facts={"host": node, "address": f"10.0.0.{node[-1]}", "cpuCores": 8, "memoryGb":
        64}, )  # fmt: skip
        Report.objects.create(worker=worker, at=moment)
    environments.sync_environments(project.pk, ["gn6", "gn7"])
    home = DevEnvironment.objects.get(name="gn6")
    return DevEnvironment.objects.create(
        pk="env-a", name="mine", project=project, cluster=home.cluster, zone=home.zone, status="stopped"
    )


def spec(run: int = 1, **about: Any) -> EnvironmentSpec:
    return EnvironmentSpec("env-a", "mine", "one", run, **{"kind": "custom", "host": "gn6", **about})


def start(run: int = 1, **about: Any) -> None:
    made = hosting.connect({}).render(spec(run, **about))
    hosting.AgentEnvironmentBackend({}).start(made)


def observe(run: int = 1) -> EnvironmentStatus:
    handle = EnvironmentHandle("env-a", run)
    return hosting.AgentEnvironmentBackend({}).observe([handle])[handle.name]


def beat(worker: str = "gn6-0", sequence: int = 1, token: str = "", **hosted: Any) -> dict[str, Any]:
    """What its agent is answered."""
    cache = HeartbeatCache()
    cache.load([worker])
    said = {"id": worker, "token": token or worker, "incarnation": "a", "sequence": sequence, "generation": 0}
    _, beats = parse_heartbeat({"workers": [{**said, "process": None, "usage": {}, "hosted": hosted}]})
    answer = cache.hear(beats)[0]
    cache.flush()
    return answer


def report_environment(seen: EnvironmentStatus, run: int = 1, sequence: int = 1) -> dict[str, Any]:
    return beat(sequence=sequence, runs={f"env-a-{run}": serialization.dump(seen)})


def test_a_run_reaches_its_host_with_a_heartbeat_and_its_report_comes_back() -> None:
    start()
    assert observe().phase is EnvironmentPhase.STARTING
    told = beat()["hosted"]
    assert told["runs"] == [{"name": "env-a-1", "environment": "env-a", "run": 1, "stop": None}]
    assert beat("gn7-0")["hosted"] is None
    body = read_run_body("gn6-0", "env-a-1")
    assert body
    assert body["spec"]["kind"] == "custom"
    assert read_run_body("gn7-0", "env-a-1") is None
    report_environment(EnvironmentStatus(EnvironmentPhase.RUNNING, True, facts={"versions": {"python": "3.13"}}))
    seen = observe()
    assert (seen.phase, seen.left) == (EnvironmentPhase.RUNNING, True)
    assert seen.facts["host"] == "gn6"
    start()  # again: nothing happens
    assert observe() == seen


def test_an_environment_holds_its_workers_until_its_run_has_ended() -> None:
    start(gpu_count=1)
    node = DevEnvironment.objects.get(name="gn6")
    assert (node.gpu_count, node.engine["workers"]) == (1, ["gn6-1"])
    assert Worker.objects.get(pk="gn6-0").environment_id == "env-a"
    assert read_run_body("gn6-0", "env-a-1")["spec"]["gpus"] == [0]  # type: ignore[index]
    report_environment(EnvironmentStatus(EnvironmentPhase.RUNNING, True))
    facts = observe().facts
    assert facts["engine"] == {"workers": ["gn6-0"], "gpus": [0], "address": "10.0.0.6"}
    environments.sync_health()
    assert DevEnvironment.objects.get(pk="env-a").status == "stopped", "its life is not the workers' to write"
    hosting.AgentEnvironmentBackend({}).stop(EnvironmentHandle("env-a", 1), 5)
    assert beat(sequence=2)["hosted"]["runs"][0]["stop"] == {"graceSeconds": 5}
    report_environment(EnvironmentStatus(EnvironmentPhase.ENDED, False), sequence=3)
    assert observe().left is False
    assert DevEnvironment.objects.get(name="gn6").engine["workers"] == ["gn6-0", "gn6-1"]


def test_a_task_trains_inside_an_environment_as_a_process_of_the_host() -> None:
    def ways(project: str = "one") -> Mapping[str, RunLocations]:
        nodes = tuple(
            clusters.build_nodes(DevEnvironment.objects.filter(name__in=("gn6", "mine")).select_related("zone"))
        )
        return plugins.get_backend("agent", {}).find_run_locations(
            JobSpec("task-x", "ddp", nodes, nodes[0].id, project=project)
        )

    DevEnvironment.objects.filter(pk="env-a").update(gpu_count=1)
    start(gpu_count=1)
    [own] = ways().values()
    assert (own.prefers, own.inside, own.beside) == (RunLocation(True, "WAY_INSIDE_GPUS", {"gpus": 1}), None, None)
    [shared] = ways("two").values()
    assert shared.inside == RunLocation(False, "INSIDE_OTHER_PROJECT", {"environment": "mine"})
    assert ways().keys() == {"env-a"}, "the node's other workers are in no environment"
    hosting.AgentEnvironmentBackend({}).stop(EnvironmentHandle("env-a", 1), 5)
    assert ways() == {}


def test_workers_of_a_task_are_not_used_for_an_environment() -> None:
    Lease.objects.create(environment=DevEnvironment.objects.get(name="gn6"), holder="task-7")
    with pytest.raises(BackendError) as refused:
        start(gpu_count=2)
    assert refused.value.code == "HOST_WORKERS_BUSY"
    assert refused.value.params["holders"] == "task-7"
    assert not refused.value.permanent
    assert observe().phase is EnvironmentPhase.ABSENT
    start(gpu_count=0)  # one without GPUs is in nobody's way
    assert observe().phase is EnvironmentPhase.STARTING


def test_the_next_run_goes_to_the_host_with_its_disk() -> None:
    start(host="gn7")
    say_on = {"runs": {"env-a-1": serialization.dump(EnvironmentStatus(EnvironmentPhase.ENDED, False))}}
    beat("gn7-0", **say_on)
    start(2, host="")
    assert [run["name"] for run in beat("gn7-0", sequence=2)["hosted"]["runs"]] == ["env-a-2"]


def test_host_and_platform_keep_the_newest_part_of_a_log(settings: Any, tmp_path: Path) -> None:
    settings.DATA_DIR = tmp_path
    start()
    assert log_upload.append_run_log("gn6-0", "env-a-1", 0, b"old\n") == 4
    assert log_upload.append_run_log("gn6-0", "env-a-1", 1 << 30, b"new\n") == (1 << 30) + 4
    with pytest.raises(log_upload.OffsetGapError):
        log_upload.append_run_log("gn6-0", "env-a-1", 1 << 62, b"never\n")
    log = hosting.build_log_path(tmp_path, EnvironmentHandle("env-a", 1))
    assert log.stat().st_blocks * 512 < 1 << 20
    assert logfiles.read_chunk(log, 0, 1 << 20).data.strip(b"\0") == b"new\n"


def test_a_run_stopped_before_it_was_sent_never_starts() -> None:
    hosting.AgentEnvironmentBackend({}).stop(EnvironmentHandle("env-a", 1), 5)
    start()
    assert (observe().phase, observe().left) == (EnvironmentPhase.ABSENT, False)
    assert beat()["hosted"] is None


def test_a_deletion_completes_when_the_host_confirms_it() -> None:
    start()
    engine = hosting.AgentEnvironmentBackend({})
    assert engine.delete("env-a") is False
    assert beat()["hosted"] == {"runs": [], "removed": ["env-a"], "channels": []}
    assert engine.delete("env-a") is False
    beat(sequence=2, gone=["env-a"])
    assert engine.delete("env-a") is True
    assert beat(sequence=3)["hosted"] is None
    assert engine.delete("env-a") is True


def test_a_silent_host_is_unknown_and_its_stopped_run_ended() -> None:
    start()
    report_environment(EnvironmentStatus(EnvironmentPhase.RUNNING, True))
    Report.objects.filter(worker="gn6-0").update(at=now() - timedelta(minutes=5))
    seen = observe()
    assert (seen.phase, seen.left, seen.waiting) == (
        EnvironmentPhase.UNKNOWN,
        None,
        Cause("HOST_LOST", {"host": "gn6"}),
    )
    hosting.AgentEnvironmentBackend({}).stop(EnvironmentHandle("env-a", 1), 5)
    assert (observe().phase, observe().left) == (EnvironmentPhase.ENDED, False)


def test_malformed_reports_of_an_agent_are_ignored() -> None:
    start()
    for nonsense in ({"phase": "dancing"}, [], "x", {"phase": "running", "activity": 7}, None):
        beat(runs={"env-a-1": nonsense}, gone=[1, "x" * 99])
    assert observe().phase is EnvironmentPhase.STARTING
    beat(sequence=2, runs={"env-a-1": {"phase": "running", "left": True, "facts": {"ip": "a\0b"}, "new": 1}})
    assert observe().phase is EnvironmentPhase.RUNNING
    beat("gn7-0", sequence=3, runs={"env-a-1": {"phase": "ended", "left": False}})  # another worker's
    assert observe().phase is EnvironmentPhase.RUNNING


def test_obstacles_are_reported_before_anything_is_sent() -> None:
    engine = hosting.AgentEnvironmentBackend({})
    assert engine.problems(spec()) == []
    assert [one.code for one in engine.problems(spec(host="gn9"))] == ["HOST_UNKNOWN"]
    assert [one.code for one in engine.problems(spec(gpu_count=3))] == ["HOST_TOO_SMALL"]
    assert [one.code for one in engine.problems(spec(image="pytorch"))] == ["HOST_WITHOUT_CONTAINERS"]
    other = EnvironmentSpec("env-a", "mine", "another project", 1)
    assert [one.code for one in engine.problems(other)] == ["WORKERS_NONE"]


def test_an_image_needs_a_host_with_a_container_engine() -> None:
    engine = hosting.AgentEnvironmentBackend({})
    gn7 = Worker.objects.get(pk="gn7-0")
    gn7.facts["containers"] = "podman 5.4.2"
    gn7.save()
    assert engine.problems(spec(host="", image="pytorch")) == []
    assert [one.code for one in engine.problems(spec(host="gn6", image="pytorch"))] == ["HOST_WITHOUT_CONTAINERS"]
    assert [one.code for one in engine.problems(spec(host="", image="pytorch", gpu_count=2))] == ["HOST_TOO_SMALL"], (
        "workers of hosts without an engine are of no use to it"
    )
    with pytest.raises(BackendError) as refused:
        start(host="gn6", image="pytorch")
    assert (refused.value.code, refused.value.permanent) == ("HOST_WITHOUT_CONTAINERS", True)
    start(host="", image="pytorch")
    assert [run["name"] for run in beat("gn7-0")["hosted"]["runs"]] == ["env-a-1"]
    assert beat("gn6-0")["hosted"] is None


def web_socket(worker: str, token: str, channel: str, *said: dict[str, Any]) -> list[dict[str, Any]]:
    """What the platform answers to one that says this."""

    async def scene() -> list[dict[str, Any]]:
        inbox: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        sent: list[dict[str, Any]] = []
        for message in ({"type": "websocket.connect"}, *said):
            inbox.put_nowait(message)

        async def send(message: Any) -> None:
            sent.append(dict(message))

        async def onward(*_: Any) -> None:
            raise AssertionError

        path = f"/api/v1/workers/{worker}/channels/{channel}"
        headers = [(b"authorization", f"Bearer {token}".encode())]
        await AgentChannelsApp(onward)({"type": "websocket", "path": path, "headers": headers}, inbox.get, send)
        return sent

    return asyncio.run(scene())


def test_a_stream_from_a_host_serves_one_connection() -> None:
    start()
    report_environment(EnvironmentStatus(EnvironmentPhase.RUNNING, True))
    with ThreadPoolExecutor(1) as pool:
        dialling = pool.submit(hosting.AgentEnvironmentBackend({}).dial, EnvironmentHandle("env-a", 1))
        found = threading.Event()
        while not found.wait(0.02):
            if waiting := (beat(sequence=2)["hosted"] or {}).get("channels"):
                found.set()
        (channel,) = waiting
        assert channel["run"] == "env-a-1"
        refused = {"type": "websocket.close", "code": 4404}
        assert web_socket("gn6-0", "gn7-0", channel["id"]) == [refused], "another worker's token"
        assert web_socket("gn7-0", "gn7-0", channel["id"]) == [refused], "another worker's channel"
        assert web_socket("gn6-0", "gn6-0", "x" * 43) == [refused], "nobody's"

        with ThreadPoolExecutor(1) as other:

            def talk() -> bytes:
                with dialling.result() as stream:
                    stream.sendall(b"down")
                    stream.shutdown(1)
                    return b"".join(iter(lambda: stream.recv(100), b""))

            heard = other.submit(talk)
            up = {"type": "websocket.receive", "bytes": b"up"}
            end = {"type": "websocket.receive", "text": '{"end": true}'}
            answers = web_socket("gn6-0", "gn6-0", channel["id"], up, end)
            assert heard.result() == b"up"
        kinds = [(one["type"], one.get("bytes") or one.get("text")) for one in answers]
        assert kinds == [
            ("websocket.accept", None), ("websocket.send", b"down"), ("websocket.send", '{"end": true}'),
            ("websocket.close", None),
        ]  # fmt: skip
        assert web_socket("gn6-0", "gn6-0", channel["id"]) == [refused], "used up"


def test_a_host_that_opens_no_stream_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channels, "WAIT_SECONDS", 0.2)
    start()
    with pytest.raises(BackendError) as away:
        hosting.AgentEnvironmentBackend({}).dial(EnvironmentHandle("env-a", 1))
    assert away.value.code == "ENVIRONMENT_AWAY"
    assert not Channel.objects.exists()
