"""Saved templates and schedules in a terminal, and tasks that come after others."""

import json
from pathlib import Path
from typing import Any

import pytest

from fermi.cli.request import parse_predecessor
from tests.fakes.api import FakeApi, data
from tests.unit.cli.conftest import Command
from tests.unit.cli.test_notices import listing

AT = "2026-11-28T02:30:00Z"


def make_parameter(name: str, kind: str) -> dict[str, Any]:
    return {"name": name, "type": kind, "label": name, "help": "", "default": None, "low": None, "high": None,
            "choices": []}  # fmt: skip


TEMPLATE: dict[str, Any] = {
    "id": "saved-1", "name": "nightly", "description": "", "projectId": "project-1", "request": {},
    "parameters": [
        make_parameter("lr", "number"), make_parameter("tag", "string"), make_parameter("where", "environments")
    ],
    "version": 1, "createdBy": "ann", "createdAt": AT, "updatedAt": AT, "mayChange": True,
}  # fmt: skip
SCHEDULE: dict[str, Any] = {
    "id": "schedule-1", "name": "nights", "projectId": "project-1", "templateId": "saved-1", "templateName": "nightly",
    "values": {}, "request": None, "cron": "30 2 * * *", "zone": "UTC", "missed": "last", "overlap": "skip",
    "enabled": True, "stopped": None, "owner": "ann", "nextAt": AT, "lastAt": None, "lastTaskId": None,
    "createdAt": AT, "updatedAt": AT, "mayChange": True,
}  # fmt: skip


@pytest.fixture(autouse=True)
def platform(api: FakeApi) -> None:
    api.on("GET", "/projects", listing({"id": "project-1", "name": "one", "role": "member", "members": 1}))
    api.on("GET", "/saved-templates", listing(TEMPLATE))
    api.on("GET", "/schedules", listing(SCHEDULE))


def test_a_template_is_saved_from_a_task_with_what_varies(api: FakeApi, command: Command) -> None:
    api.on("POST", "/saved-templates", data(TEMPLATE, 201))
    said = command("template", "save", "nightly", "--task", "task-1", "--parameter", "lr:number=hyperparameters.lr")
    assert "saved-1" in said.out
    assert api.list_requests("POST", "/saved-templates")[0].body == {
        "name": "nightly", "description": "", "taskId": "task-1",
        "parameters": [{"name": "lr", "type": "number", "path": "hyperparameters.lr"}],
    }  # fmt: skip
    assert command("template", "save", "nightly").code == 2
    assert command("template", "save", "nightly", "--task", "t", "--parameter", "lr").code == 2


def test_a_template_runs_with_values_of_the_parameters_types(api: FakeApi, command: Command) -> None:
    api.on("POST", "/saved-templates/saved-1/tasks", data({"taskId": "task-2", "taskName": "n", "status": "x"}, 201))
    said = command("template", "run", "nightly", "-p", "lr=1e-3", "-p", "tag=7", "-p", "where=env-1,env-2")
    assert "task-2" in said.out
    assert api.list_requests("POST", "/saved-templates/saved-1/tasks")[0].body == {
        "values": {"lr": 0.001, "tag": "7", "where": ["env-1", "env-2"]}
    }
    assert command("template", "run", "unknown").code == 2
    assert "lr" in command("template", "show", "saved-1").out
    assert "nightly" in command("template").out


def test_a_schedule_is_added_paused_and_explained(api: FakeApi, command: Command, tmp_path: Path) -> None:
    api.on("POST", "/schedules", data(SCHEDULE, 201))
    api.on("PATCH", "/schedules/schedule-1", data({**SCHEDULE, "enabled": False, "nextAt": None}))
    reason = {"code": "SCHEDULE_OVERLAP", "message": "Skipped: still going on.", "hint": ""}
    run = {"moment": AT, "outcome": "skipped", "taskId": None, "reason": reason, "decidedAt": AT}
    api.on("GET", "/schedules/schedule-1/runs", listing(run))
    command(
        "schedule", "add", "nights", "--cron", "30 2 * * *", "--template", "nightly", "-p", "lr=1", "--project", "one"
    )
    assert api.list_requests("POST", "/schedules")[0].body == {
        "name": "nights", "cron": "30 2 * * *", "zone": "UTC", "projectId": "project-1", "templateId": "saved-1",
        "values": {"lr": 1},
    }  # fmt: skip
    (tmp_path / "request.json").write_text(json.dumps({"taskName": "x"}), "utf-8")
    command("schedule", "add", "n", "--cron", "0 0 * * *", "-f", str(tmp_path / "request.json"), "--project", "one")
    assert api.list_requests("POST", "/schedules")[1].body["request"] == {"taskName": "x"}
    assert command("schedule", "add", "n", "--cron", "0 0 * * *").code == 2
    assert "paused" in command("schedule", "pause", "nights").out
    assert api.list_requests("PATCH", "/schedules/schedule-1")[0].body == {"enabled": False}
    assert "still going on" in command("schedule", "history", "nights").out
    assert "30 2 * * *" in command("schedule").out
    api.on("POST", "/schedules/schedule-1/runs", data({**run, "outcome": "pending", "reason": None}, 201))
    assert "pending" in command("schedule", "run", "nights").out


@pytest.mark.parametrize(
    ("text", "entry"),
    [
        ("task-1", {"task": "task-1"}),
        ("task-1:failed", {"task": "task-1", "on": "failed"}),
        ("task-1:ended:best", {"task": "task-1", "on": "ended", "checkpoint": "best"}),
        ("task-1::best", {"task": "task-1", "checkpoint": "best"}),
    ],
)
def test_what_a_task_comes_after_is_read_from_a_flag(text: str, entry: dict[str, str]) -> None:
    assert parse_predecessor(text) == entry
