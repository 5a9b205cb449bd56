"""WebSockets: through the proxy, and the API's own channels."""

import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect

from apps.accounts.models import ApiToken, AuditEvent, Membership, Project, Role
from apps.clusters.models import DevEnvironment
from apps.common import open_connections
from apps.common.clock import now
from apps.proxy import access_watch, http_proxy
from apps.training.models import Attempt, Node, Task
from apps.training.states import TaskState
from fermi.envd import protocol
from fermi.runner import files, processes
from tests.polling import until
from tests.proxy.conftest import ENVIRONMENT, Console, Inside
from tests.proxy.fake_envd import FakeEnvd
from tests.proxy.web_service import Service

CHANNEL = f"/api/v1/dev-environments/{ENVIRONMENT}/channel"


@pytest.fixture(autouse=True)
def looked_at_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(access_watch, "CHECK_SECONDS", 0.1)
    monkeypatch.setattr(http_proxy, "CHECK_SECONDS", 0.1)


def at_door(inside: Inside, path: str = "/ws", **more: Any) -> ClientConnection:
    more = {"origin": inside.origin, "additional_headers": {"Cookie": inside.cookie}, **more}
    return connect(f"ws://{inside.host}{path}", sock=inside.dial(), max_size=None, proxy=None, **more)


def refused(connecting: Callable[[], ClientConnection]) -> tuple[int, bytes]:
    with pytest.raises(InvalidStatus) as refusal:
        connecting()
    return refusal.value.response.status_code, bytes(refusal.value.response.body or b"")


def channel(who: Console, path: str = CHANNEL, **more: Any) -> ClientConnection:
    sock = socket.create_connection(("127.0.0.1", who.port), timeout=30)
    more = {"additional_headers": {"Authorization": f"Bearer {who.token}"}, **more}
    return connect(f"ws://localhost:{who.port}{path}", sock=sock, max_size=None, proxy=None, **more)


def send_message(connection: ClientConnection, **asked: Any) -> dict[str, Any]:
    connection.send(json.dumps(asked))
    answer: dict[str, Any] = json.loads(connection.recv(30))
    return answer


def output(connection: ClientConnection) -> tuple[bytes, bytes, int]:
    found = {protocol.OUT: b"", protocol.ERR: b""}
    for message in connection:
        assert isinstance(message, bytes)
        if message[0] == protocol.CONTROL:
            return found[protocol.OUT], found[protocol.ERR], json.loads(message[1:])["exit"]
        found[message[0]] += message[1:]
    raise AssertionError(f"no end: {found}")


# Through the proxy ---------------------------------------------------------------------------------------------------


def test_messages_of_both_kinds_pass_in_both_directions(inside: Inside, service: Service) -> None:
    with at_door(inside, "/ws?token=a%20b", subprotocols=["v1", "v2"]) as connection:  # type: ignore[list-item]
        assert connection.subprotocol == "v2"
        headers = json.loads(connection.recv(30))
        assert (headers["host"], headers["origin"]) == (inside.host, inside.origin)
        assert "cookie" not in headers
        for message in ("text ✓", b"\x00\xff", "x" * (5 << 20), b"\x01" * (5 << 20)):
            connection.send(message)
            assert connection.recv(30) == message
        connection.send("close")
        with pytest.raises(ConnectionClosed) as closed:
            connection.recv(30)
        assert closed.value.rcvd is not None
        assert (closed.value.rcvd.code, closed.value.rcvd.reason) == (4321, "as asked")
    until(lambda: len(service.closed) == 1, what="the environment has closed the first one")
    with at_door(inside) as connection:
        connection.close(4001)
    until(lambda: service.closed[1:] == [4001], what="the environment hears the code")


def test_a_websocket_needs_the_cookie_and_its_own_origin(inside: Inside) -> None:
    for origin in ("http://evil.example", f"http://localhost:{inside.port}", f"http://env-b.localhost:{inside.port}"):
        status, body = refused(lambda origin=origin: at_door(inside, origin=origin))  # type: ignore[misc]
        assert (status, json.loads(body)["error"]) == (403, "DOOR_CROSS_SITE")
    assert refused(lambda: at_door(inside, origin=None))[0] == 403
    status, body = refused(lambda: at_door(inside, additional_headers={}))
    assert (status, json.loads(body)["error"]) == (404, "NOT_FOUND")


def test_the_answer_to_a_handshake_is_forwarded_and_redirects_are_not_followed(inside: Inside) -> None:
    assert refused(lambda: at_door(inside, "/ws-no")) == (418, b"no sockets here")
    with pytest.raises(ValueError, match=r"redirect to ws://127\.0\.0\.1:1/"):  # the client's, who is told of it
        at_door(inside, "/ws-away")


@pytest.mark.parametrize("end", ["sign out", "role", "environment"])
def test_an_open_websocket_ends_with_the_access(member: Console, inside: Inside, end: str) -> None:
    with at_door(inside) as connection, channel(member) as other:
        connection.recv(30)
        assert send_message(other, open="exec", command=["sleep", "60"])["ok"]
        match end:
            case "sign out":
                member.sign_out()
                ApiToken.objects.filter(user=member.user).delete()
            case "role":
                Membership.objects.all().delete()
            case "environment":
                DevEnvironment.objects.all().delete()
        for each in (connection, other):
            with pytest.raises(ConnectionClosed) as closed:
                each.recv(30)
            assert closed.value.rcvd is not None
            assert closed.value.rcvd.code == 1008


def test_the_loss_of_envd_closes_the_websocket(inside: Inside, envd: FakeEnvd) -> None:
    with at_door(inside) as connection:
        connection.recv(30)
        envd.drop_all()
        with pytest.raises(ConnectionClosed):
            connection.recv(30)
    envd.away = True
    status, body = refused(lambda: at_door(inside))
    assert (status, json.loads(body)["error"]) == (502, "DOOR_BROKE")


# Channels ------------------------------------------------------------------------------------------------------------


def test_a_command_returns_output_and_exit_code_and_is_audited(member: Console) -> None:
    with channel(member) as connection:
        code = "import os, sys; print(os.environ['A'], input()); print('no', file=sys.stderr); sys.exit(7)"
        assert send_message(connection, open="exec", command=[sys.executable, "-c", code], env={"A": "b"}) == {
            "ok": True
        }
        connection.send(bytes([protocol.IN]) + b"typed\n")
        assert output(connection) == (b"b typed\n", b"no\n", 7)
    event = AuditEvent.objects.get(action="environment.exec")
    assert (event.target, event.actor, event.project_id) == (ENVIRONMENT, member.user, "project-one")
    assert event.data["command"].endswith(code)
    assert "typed" not in str(event.data)


def test_a_slow_reader_is_sent_no_more_until_it_catches_up(member: Console) -> None:
    with channel(member) as connection:
        assert send_message(connection, open="exec", command=["cat"])["ok"]
        connection.send(json.dumps({"flow": False}))
        connection.send(bytes((protocol.IN,)) + b"later")
        with pytest.raises(TimeoutError):
            connection.recv(timeout=0.5)
        connection.send(json.dumps({"flow": True}))
        assert connection.recv(timeout=30) == bytes((protocol.OUT,)) + b"later"


def test_a_terminal_is_opened_by_the_consoles_own_pages(member: Console, envd: FakeEnvd) -> None:
    cookie = {"Cookie": f"sessionid={member.session}"}
    with channel(member, origin=member.origin, additional_headers=cookie) as connection:
        assert send_message(connection, open="exec", tty={"columns": 80, "rows": 24})["ok"]
        connection.send(bytes([protocol.IN]) + b"echo $((6*7)); exit 3\n")
        out, _, code = output(connection)
        assert (b"42" in out, code) == (True, 3)
    assert envd.asked[-1] == {
        "open": "exec", "command": None, "cwd": "", "env": {}, "tty": {"columns": 80, "rows": 24},
    }  # fmt: skip
    assert AuditEvent.objects.filter(action="environment.shell", data={}).count() == 1
    for origin in ("http://evil.example", f"http://{ENVIRONMENT}.localhost:{member.port}", None):
        status, body = refused(
            lambda origin=origin: channel(member, origin=origin, additional_headers=cookie)  # type: ignore[misc]
        )
        assert (status, json.loads(body)["error"]) == (403, "CHANNEL_ORIGIN")


def test_a_tunnel_carries_bytes_and_the_end_of_either_side(member: Console, service: Service) -> None:
    with channel(member) as connection:
        assert send_message(connection, open="port", port=service.port)["ok"]
        connection.send(b"GET /seen HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        got = b""
        while isinstance(piece := connection.recv(30), bytes):
            got += piece
        assert got.startswith(b"HTTP/1.1 200 OK")
        assert json.loads(piece) == {"end": True}
        connection.send(json.dumps({"end": True}))
        with pytest.raises(ConnectionClosed) as closed:
            connection.recv(30)
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 1000
    assert AuditEvent.objects.get(action="environment.tunnel").data == {"port": service.port}


def test_a_forbidden_websocket_gets_the_envelope(
    member: Console, stranger: Console, person: Callable[..., Console]
) -> None:
    def status(who: Console, path: str = CHANNEL, **more: Any) -> tuple[int, str]:
        code, body = refused(lambda: channel(who, path, **more))
        return code, json.loads(body)["error"]

    assert status(stranger) == status(member, CHANNEL.replace(ENVIRONMENT, "env-nobody")) == (404, "NOT_FOUND")
    assert status(person("viewer", Role.VIEWER)) == (403, "FORBIDDEN")
    assert status(member, additional_headers={}) == (401, "NOT_AUTHENTICATED")
    assert status(member, additional_headers={"Authorization": "Bearer fermi_no"}) == (401, "TOKEN_INVALID")
    assert status(member, "/api/v1/nowhere") == (404, "NO_SUCH_ADDRESS")
    assert not AuditEvent.objects.filter(action__startswith="environment.").exists()


@pytest.mark.parametrize(
    ("asked", "field"),
    [
        ("", "–"), ("[]", "–"), ('{"open": "status"}', "open"), ('{"open": "end-kernel", "kernel": "x"}', "open"),
        ('{"open": "port", "port": 0}', "port"), ('{"open": "port", "port": true}', "port"),
        ('{"open": "exec", "command": []}', "command"), ('{"open": "exec", "command": ["a\\u0000b"]}', "command"),
        ('{"open": "exec", "env": {"A=B": "c"}}', "env"), ('{"open": "exec", "cwd": 3}', "cwd"),
        ('{"open": "exec", "tty": {"columns": "80", "rows": 1}}', "tty"),
        ('{"open": "exec", "tty": {"columns": -1, "rows": 1}}', "tty"), ('{"open": "exec", "tty": {}}', "tty"),
    ],
)  # fmt: skip
def test_an_invalid_request_names_its_field(asked: str, field: str) -> None:
    from apps.proxy import envd_requests

    with pytest.raises(ValueError) as wrong:
        envd_requests.parse_request(asked)
    assert (str(wrong.value) or "–") == field


def test_a_terminal_without_a_size_gets_the_default() -> None:
    from apps.proxy import envd_requests

    asked = envd_requests.parse_request('{"open": "exec", "tty": {"columns": 0, "rows": 0}}')
    assert asked["tty"] == {"columns": 80, "rows": 24}


def test_a_refusal_of_envd_is_passed_on_with_its_code(member: Console) -> None:
    with channel(member) as connection:
        answer = send_message(connection, open="port", port=1)
        assert (answer["ok"], answer["code"]) == (False, "PORT_CLOSED")
    with channel(member) as connection:
        answer = send_message(connection, open="nothing")
        assert (answer["ok"], answer["code"], answer["params"]) == (False, "CHANNEL_REQUEST", {"field": "open"})


def test_a_too_long_or_too_deep_first_message_is_refused(member: Console) -> None:
    for said_first in ('{"open":"exec","cwd":"' + "x" * protocol.MAX_LINE_BYTES + '"}', "[" * 60_000):
        with channel(member) as connection:
            connection.send(said_first)
            assert json.loads(connection.recv(30))["code"] == "CHANNEL_REQUEST"


def test_a_narrow_token_opens_channels_with_the_scope_for_it_alone(member: Console) -> None:
    tokens = ApiToken.objects.filter(user=member.user)
    for limits in ({"scopes": ["environments:write"]}, {"tasks": ["task-x"]}, {"projects": ["project-two"]}):
        tokens.update(**{"scopes": None, "tasks": None, "projects": None, **limits})
        assert refused(lambda: channel(member))[0] == (404 if "projects" in limits else 403), limits
    other_rank = "/api/v1/training-tasks/task-y/ranks/0/channel"
    tokens.update(scopes=["environments:open"], tasks=["task-x"], projects=None)
    assert json.loads(refused(lambda: channel(member, other_rank))[1])["error"] == "TOKEN_TASK_OTHER"
    tokens.update(scopes=["environments:open"], tasks=None)
    with channel(member) as connection:
        assert send_message(connection, open="port", port=1)["code"] == "PORT_CLOSED"


def test_open_channels_per_user_are_limited(member: Console, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(open_connections.ConnectionLimit, "most", property(lambda _: 1), raising=False)
    with channel(member):
        status, body = refused(lambda: channel(member))
        assert (status, json.loads(body)["error"]) == (429, "CHANNELS_TOO_MANY")


def test_invalid_frames_close_the_channel(member: Console) -> None:
    with channel(member) as connection:
        assert send_message(connection, open="exec", command=["sleep", "60"])["ok"]
        connection.send(bytes([protocol.OUT]) + b"x")
        with pytest.raises(ConnectionClosed) as closed:
            connection.recv(30)
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 1003


def test_a_command_next_to_a_rank_has_its_variables_and_directory(
    member: Console, stranger: Console, person: Callable[..., Console], world: DevEnvironment, tmp_path: Any,
    request: pytest.FixtureRequest,
) -> None:  # fmt: skip
    node = {
        "node_rank": 0, "cwd": str(tmp_path), "env": {"MASTER_PORT": "29500"},
        "ranks": [{"rank": rank, "local_rank": rank, "env": {"RANK": str(rank)}, "log": ""} for rank in range(2)],
    }  # fmt: skip
    task = Task.objects.create(
        id="task-x", project=Project.objects.get(pk="project-one"), owner=member.user, cluster=world.cluster, name="t",
        framework="pytorch-ddp", node_count=1, total_gpus=2, world_size=2, master=world.pk, request={}, spec={},
        summary={}, state=TaskState.RUNNING, state_since=now(), due_at=now(), created_at=now(), attempt=1,
    )  # fmt: skip
    Node.objects.create(task=task, node_rank=0, environment=world, name="n", zone="z", processes=2)
    folder = Path(settings.DATA_DIR, "runs", "task-x-1")
    folder.mkdir(parents=True)
    request.addfinalizer(lambda: shutil.rmtree(folder))  # its runner is this very process
    files.write_json_atomically(str(folder / "node-0.json"), node)
    lives = {"pid": os.getpid(), "start_time": processes.read_start_time(os.getpid())}
    ranks = [{"rank": rank, "state": "running", **lives} for rank in range(2)]
    status = {**files.build_first_status("task-x-1", 2, "running"), "runner": lives, "ranks": ranks}
    files.write_json_atomically(str(folder / "node-0.status.json"), status)
    plan = {"version": 1, "name": "task-x-1", "backend": "local", "artifacts": [
        {"kind": "node", "name": "node-0", "content": node}]}  # fmt: skip
    attempt = Attempt.objects.create(task=task, number=1, master_port=1, created_at=now(), running_at=now(), plan=plan)
    path = "/api/v1/training-tasks/task-x/ranks/1/channel"
    code = "import os; print(os.environ['RANK'], os.environ['MASTER_PORT'], os.environ['X'], os.getcwd())"
    with channel(member, path) as connection:
        assert send_message(connection, open="exec", command=[sys.executable, "-c", code], env={"X": "mine"})["ok"]
        assert output(connection) == (f"1 29500 mine {tmp_path}\n".encode(), b"", 0)
    event = AuditEvent.objects.get(action="task.exec")
    assert (event.target, event.data["rank"], event.data["environment"]) == ("task-x", 1, world.pk)
    with channel(member, path) as connection:
        assert send_message(connection, open="port", port=22)["code"] == "CHANNEL_REQUEST"
    assert refused(lambda: channel(stranger, path))[0] == 404
    assert refused(lambda: channel(person("viewer", Role.VIEWER), path))[0] == 403
    assert refused(lambda: channel(member, path.replace("/1/", "/2/")))[0] == 404
    Attempt.objects.filter(pk=attempt.pk).update(outcome="SUCCEEDED")
    status_, body = refused(lambda: channel(member, path))
    assert (status_, json.loads(body)["error"]) == (409, "RANK_NOT_RUNNING")


def test_a_command_ends_with_its_last_reader(member: Console, tmp_path: Any) -> None:
    mark = tmp_path / "pid"
    with channel(member) as connection:
        send_message(connection, open="exec", command=["sh", "-c", f"echo $$ > {mark}; exec sleep 600"])
        pid = until(lambda: mark.exists() and mark.read_text().strip(), what="it runs")
    until(lambda: subprocess.run(["kill", "-0", pid], capture_output=True).returncode, what="it is gone")
