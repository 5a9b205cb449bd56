"""What an environment tells of a folder, where it tells nonsense or does not end."""

import json
import socket
from types import SimpleNamespace
from typing import Any

import pytest

from apps.accounts.models import Project
from apps.clusters.models import AvailabilityZone, Cluster, DevEnvironment
from apps.code import from_environment
from apps.code.errors import FetchError
from apps.environments import connection
from fermi.envd import protocol

GOOD = {"ok": True, "manifest": 2, "patch": 0, "origin": {}}


class Telling:
    """An environment that says these lines, one to what it is asked and one as its command."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.project = Project.objects.create(name="p")
        cluster = Cluster.objects.create(name="local", backend="local")
        zone = AvailabilityZone.objects.create(name="z")
        self.row = DevEnvironment.objects.create(name="mine", project=self.project, cluster=cluster, zone=zone)
        self.ours, self.theirs = socket.socketpair()
        monkeypatch.setattr(from_environment, "check_environment", lambda *given: [])
        monkeypatch.setattr(connection, "dial_envd", lambda environment: self.ours)

    def identify(self, answer: Any, head: Any, rest: bytes = b"") -> str:
        frames = protocol.encode_frame(
            protocol.OUT, json.dumps(head).encode() + b"\n" + rest
        ) + protocol.encode_control({"exit": 0})
        self.theirs.sendall(json.dumps(answer).encode() + b"\n" + frames)
        return from_environment.read_snapshot_id(self.project, {"environment": self.row.pk, "path": "."}, 60)


@pytest.fixture
def telling(db: None, monkeypatch: pytest.MonkeyPatch) -> Any:
    made = Telling(monkeypatch)
    yield made
    made.theirs.close()


def test_a_folder_is_identified_by_its_manifest(telling: Telling) -> None:
    assert telling.identify({"ok": True}, GOOD, b"{}") == from_environment.snapshot.compute_snapshot_id(b"{}")


@pytest.mark.parametrize(
    "head",
    [
        {"ok": True},
        {**GOOD, "manifest": "2"},
        {**GOOD, "manifest": -1},
        {**GOOD, "patch": None},
        {**GOOD, "patch": -1},
        {**GOOD, "origin": []},
        {"ok": False},
        {"ok": False, "code": ["SNAPSHOT_EMPTY"], "params": {}},
        {"ok": False, "code": "SNAPSHOT_EMPTY", "params": []},
        {"ok": False, "code": "SNAPSHOT_EMPTY", "params": {"code": "X"}},
        {"ok": False, "code": "SNAPSHOT_EMPTY", "params": {"retry": True}},
        [],
    ],
)
def test_a_malformed_answer_is_reported_as_a_broken_environment(telling: Telling, head: Any) -> None:
    with pytest.raises(FetchError) as found:
        telling.identify({"ok": True}, head, b"{}")
    assert (found.value.code, found.value.params["environment"]) == ("CODE_ENVIRONMENT_BROKE", "mine")


@pytest.mark.parametrize(
    "answer", [{}, {"code": 1}, {"code": "X", "params": [1]}, {"code": "X", "params": {"self": 1}}]
)
def test_a_malformed_answer_of_envd_is_reported(telling: Telling, answer: Any) -> None:
    with pytest.raises(FetchError, match="CODE_ENVIRONMENT_BROKE"):
        telling.identify(answer, GOOD)


@pytest.mark.parametrize("channel", [protocol.OUT, protocol.ERR, protocol.CONTROL])
def test_an_endless_answer_is_read_up_to_the_limit(monkeypatch: pytest.MonkeyPatch, channel: int) -> None:
    heard, waits = [0], []

    def recv(size: int) -> bytes:
        heard[0] += 1
        assert heard[0] < 1000
        return protocol.encode_frame(channel, b'{"exit": null}')

    stream: Any = SimpleNamespace(recv=recv, settimeout=waits.append)
    monkeypatch.setattr(from_environment, "time", SimpleNamespace(monotonic=lambda: float(heard[0])))
    told = from_environment._CommandOutput(stream, "mine", 100)
    with pytest.raises(FetchError, match="CODE_ENVIRONMENT_SLOW") as found:
        told.readall()
    assert (heard[0], found.value.params["seconds"]) == (100, 100)
    assert all(0 < wait <= from_environment.MAX_SILENCE_SECONDS for wait in waits)


def test_a_slow_answer_has_the_same_timeout_as_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    heard = [0]

    def recv(size: int) -> bytes:
        heard[0] += 1
        return b" "

    stream: Any = SimpleNamespace(recv=recv, settimeout=lambda seconds: None, sendall=lambda data: None)
    monkeypatch.setattr(protocol, "time", SimpleNamespace(monotonic=lambda: float(heard[0])))
    with pytest.raises(TimeoutError):
        protocol.send_request(stream, {}, 50)
    assert heard[0] == 50
