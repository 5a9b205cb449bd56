"""`fermi tensorboard`: opens the TensorBoard of tasks, lists and ends them."""

from typing import Any

import pytest

from tests.fakes.api import FakeApi, data
from tests.unit.cli.conftest import Command

BOARD = {
    "id": "tensorboard-1", "environmentId": "env-9", "projectId": "project-one", "taskIds": ["task-1", "task-2"],
    "state": "ready", "reason": None, "url": "/environments/env-9/open?door=tensorboard",
    "endsAt": "2026-11-28T10:30:00Z", "createdBy": "ann", "createdAt": "2026-11-28T10:00:00Z",
}  # fmt: skip
URL = "http://env-9.localhost:8000/_fermi/enter?ticket=x"


def board(**changed: Any) -> Any:
    return data({**BOARD, **changed})


def reason(message: str, hint: str = "") -> dict[str, str]:
    return {"code": "X", "message": message, "hint": hint}


def test_it_waits_until_it_is_ready_and_prints_an_address(api: FakeApi, command: Command) -> None:
    api.on("POST", "/tensorboards", board(state="starting", reason=reason("It starts."), url=None))
    starting = board(state="starting", reason=reason("Installing packages"), url=None)
    api.on("GET", "/tensorboards/tensorboard-1", starting, board())
    api.on("POST", "/dev-environments/env-9/doors", data({"url": URL, "expiresAt": "2026-11-28T10:01:00Z"}))
    found = command("tensorboard", "task-1", "task-2", "--print")
    assert (found.code, found.out.strip()) == (0, URL)
    assert "Installing packages" in found.err
    assert api.list_requests("POST", "/tensorboards")[0].body == {"taskIds": ["task-1", "task-2"]}


def test_one_that_failed_says_why(api: FakeApi, command: Command) -> None:
    api.on("POST", "/tensorboards", board(state="starting", url=None))
    failed = board(state="failed", url=None, reason=reason("Packages cannot be installed.", "Name an image."))
    api.on("GET", "/tensorboards/tensorboard-1", failed)
    found = command("tensorboard", "task-1")
    assert found.code == 1
    assert "Packages cannot be installed." in found.err
    assert "Name an image." in found.err


def test_they_are_listed_and_ended(api: FakeApi, command: Command) -> None:
    api.on("GET", "/tensorboards", data({"items": [BOARD], "total": 1, "page": 1, "pageSize": 200}))
    assert "task-1, task-2" in command("tensorboard", "--list").out
    api.on("DELETE", "/tensorboards/tensorboard-1", data(None))
    found = command("tensorboard", "--end", "tensorboard-1")
    assert (found.code, len(api.list_requests("DELETE", "/tensorboards/tensorboard-1"))) == (0, 1)
    assert "tensorboard-1 is ending" in found.err


@pytest.mark.parametrize("words", [[], ["task-1", "--list"], ["--list", "--end", "x"]])
def test_it_does_one_thing(command: Command, words: list[str]) -> None:
    assert command("tensorboard", *words).code == 2
