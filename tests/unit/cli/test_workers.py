"""`fermi workers` and `fermi groups`: what they ask of the API and what they show."""

from typing import Any

import pytest

from tests.fakes.api import FakeApi, data, page
from tests.unit.cli.conftest import Command


def worker(**changes: Any) -> dict[str, Any]:
    return {
        "id": "gn6-0", "node": "gn6", "number": 0, "projectId": "project-1", "gpu": 0, "status": "online",
        "group": {"id": "group-1", "name": "pretrain"}, "rank": 0, "localRank": 0, "nodeRank": 0, "worldSize": 4,
        "lastHeartbeatAt": "2026-11-21T00:00:00Z", "heartbeatAgeSeconds": 1.5, "generation": 7,
        "process": {"state": "running", "pid": 77, "exitCode": None, "taskId": "task-1", "attempt": 1},
        "usage": {"gpuUtilization": 97.0, "gpuMemoryUsedMb": 40000, "gpuMemoryTotalMb": 80000, "cpuPercent": 100.0,
                  "memoryUsedMb": 5000},
        "environmentId": "env-1", "host": "gn6.lab", "ip": "10.0.0.6", "version": "0.1.0", "allowedActions": [],
    } | changes  # fmt: skip


def group(**changes: Any) -> dict[str, Any]:
    member = {"id": "gn6-0", "node": "gn6", "number": 0, "status": "online", "rank": 0, "localRank": 0, "nodeRank": 0}
    return {
        "id": "group-1", "name": "pretrain", "projectId": "project-1", "masterAddress": "gn6", "worldSize": None,
        "effectiveWorldSize": 1, "masterPort": 29500, "backend": "nccl", "effectiveBackend": "nccl",
        "script": "train.py", "args": ["--epochs"],
        "env": {}, "maxRestarts": 3, "createdAt": "2026-11-21T00:00:00Z", "workers": [member], "problems": [],
        "warnings": [], "secretEnv": {},
        "task": {"id": "task-1", "name": "pretrain", "status": "running"}, "allowedActions": ["stop"],
    } | changes  # fmt: skip


def test_workers_are_listed_with_their_facts(api: FakeApi, command: Command) -> None:
    api.on("GET", "/workers", page([worker(), worker(id="gn6-1", status="lost", group=None, rank=None)]))
    result = command("workers", "--status", "online", "--status", "lost", "--group", "pretrain")
    assert result.code == 0
    assert "pretrain" in result.out
    assert "lost" in result.out
    [request] = api.requests
    assert (request.queries["status"], request.query["group"]) == (["online", "lost"], "pretrain")


def test_a_worker_is_shown_and_removed(api: FakeApi, command: Command) -> None:
    api.on("GET", "/workers/gn6-0", data(worker()))
    api.on("GET", "/workers/gn6-0/environment", data({"env": {"RANK": "0", "MASTER_ADDR": "gn6"}, "problems": []}))
    api.on("DELETE", "/workers/gn6-0", data(None))
    assert "task-1" in command("workers", "show", "gn6-0").out
    assert command("workers", "env", "gn6-0").out.split() == ["MASTER_ADDR", "gn6", "RANK", "0"]
    assert command("workers", "delete", "gn6-0").code == 0
    assert command("workers", "show").code == 2


def test_a_join_token_is_shown_with_the_command_to_run(api: FakeApi, command: Command) -> None:
    made = {
        "id": "join-1",
        "name": "lab",
        "projectId": "p",
        "token": "join_secret",
        "command": "fermi worker --token x",
    }
    api.on("POST", "/workers/join-tokens", data(made, 201))
    result = command("workers", "join-token", "lab")
    assert "join_secret" in result.out
    assert "fermi worker --token x" in result.err


def test_a_group_is_made_with_its_settings_and_changed_by_name(api: FakeApi, command: Command) -> None:
    api.on("POST", "/worker-groups", data(group(), 201))
    api.on("GET", "/worker-groups", page([group()]))
    api.on("PATCH", "/worker-groups/group-1", data(group()))
    words = ["--master", "gn6", "--script", "train.py", "--arg=--epochs", "--arg=3", "--world-size", "2"]
    words += ["--env", "NCCL_DEBUG=INFO"]
    assert command("groups", "create", "pretrain", "gn6-0", "gn7-0", *words).code == 0
    assert api.requests[-1].body == {
        "name": "pretrain", "workerIds": ["gn6-0", "gn7-0"], "masterAddress": "gn6", "script": "train.py",
        "args": ["--epochs", "3"], "env": {"NCCL_DEBUG": "INFO"}, "worldSize": 2,
    }  # fmt: skip
    assert command("groups", "edit", "pretrain", "--rename", "tune", "--world-size", "0").code == 0
    assert api.requests[-1].body == {"name": "tune", "worldSize": None}


@pytest.mark.parametrize("action", ["start", "stop", "restart"])
def test_a_group_is_started_and_stopped_by_id_or_name(action: str, api: FakeApi, command: Command) -> None:
    api.on("GET", "/worker-groups", page([group()]))
    api.on("POST", f"/worker-groups/group-1/{action}", data(group()))
    assert "task-1" in command("groups", action, "pretrain").out
    assert command("groups", action, "group-1").code == 0


def test_workers_are_moved_into_and_out_of_groups(api: FakeApi, command: Command) -> None:
    api.on("GET", "/worker-groups", page([group()]))
    api.on("POST", "/worker-groups/move", data({"moved": []}))
    assert command("groups", "move", "pretrain", "gn6-0", "gn6-1").code == 0
    assert api.requests[-1].body == {"workerIds": ["gn6-0", "gn6-1"], "groupId": "group-1"}
    assert command("groups", "move", "none", "gn6-0").code == 0
    assert api.requests[-1].body == {"workerIds": ["gn6-0"], "groupId": None}


def test_problems_of_a_group_are_shown(api: FakeApi, command: Command) -> None:
    problem = {"field": "workers", "error": "GROUP_EMPTY", "message": "no workers", "hint": "move some"}
    api.on("GET", "/worker-groups", page([group()]))
    api.on("GET", "/worker-groups/group-1", data(group(problems=[problem], workers=[], task=None)))
    assert "GROUP_EMPTY" in command("groups", "show", "pretrain").err
