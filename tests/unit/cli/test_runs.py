"""The table of runs from the command line."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.api import FakeApi, Reply, data
from tests.unit.cli.conftest import Command

TASK = {"taskId": "task-1", "taskName": "first", "status": "failed", "createdAt": "2026-11-01T00:00:00Z",
        "reason": None, "paused": False}  # fmt: skip
ITEM = {"task": TASK, "tags": ["baseline"], "note": "", "archivedAt": None, "values": {"param.lr": 0.1}}
PAGE: dict[str, Any] = {
    "items": [ITEM], "nextCursor": None, "total": 1, "totalIsExact": True, "searched": {"complete": True, "tasks": 1},
    "unknownNames": [],
}  # fmt: skip


def test_names_that_no_run_has_are_named_beside_an_empty_table(api: FakeApi, command: Command) -> None:
    api.on("GET", "/runs", data({**PAGE, "items": [], "total": 0, "unknownNames": ["statsu", "metric.los"]}))
    assert "statsu, metric.los" in command("runs", "statsu:failed metric.los<1").err


def test_runs_have_the_columns_that_were_named(api: FakeApi, command: Command) -> None:
    api.on("GET", "/runs", data(PAGE))
    head, row = command("runs", "status:failed", "lr>0.01", "-c", "lr,opt", "--sort", "-lr").out.splitlines()
    assert "param.lr" in head
    assert row.split()[:4] == ["task-1", "first", "failed", "0.1"]
    [request] = api.list_requests("GET", "/runs")
    assert request.query["query"] == "status:failed lr>0.01"
    assert request.query["sort"] == "-lr"


def test_the_wrong_part_of_a_query_is_marked(api: FakeApi, command: Command) -> None:
    problem = {"field": "query", "error": "QUERY_CHOICE_UNKNOWN", "message": "status cannot be nope.", "hint": "",
               "place": {"from": 10, "to": 14}}  # fmt: skip
    body = {"code": 400, "message": "m", "error": "QUERY_CHOICE_UNKNOWN", "errors": [problem], "requestId": "r"}
    api.on("GET", "/runs", Reply(json.dumps(body).encode(), status=400))
    found = command("runs", "名称 status:nope x")
    assert found.code == 2
    shown, mark = found.err.splitlines()[:2]
    assert shown == "  名称 status:nope x"
    assert mark == "  " + " " * 12 + "^^^^"
    assert "status cannot be nope." in found.err


def test_reading_that_did_not_end_is_reported(api: FakeApi, command: Command) -> None:
    page = {**PAGE, "nextCursor": "c", "total": None, "searched": {"complete": False, "tasks": 20_000}}
    api.on("GET", "/runs", data(page))
    assert "20000 tasks were read" in command("runs").err


def test_all_pages_are_read(api: FakeApi, command: Command) -> None:
    pages = [{**PAGE, "items": [ITEM] * 2, "nextCursor": "c"}, PAGE]
    api.on("GET", "/runs", *(data(page) for page in pages))
    assert len(json.loads(command("runs", "--all", "--format", "json").out)["items"]) == 3
    assert [request.query.get("cursor") for request in api.list_requests("GET", "/runs")] == [None, "c"]


def test_groups_are_a_table_of_figures(api: FakeApi, command: Command) -> None:
    figures = {"mean": 1.5, "std": 0.5, "min": 1.0, "max": 2.0, "count": 2}
    group = {"key": {"param.lr": 0.1}, "count": 2, "values": {"metric.loss.last": figures}}
    api.on("GET", "/runs/groups", data({"items": [group], "groups": 1, "tasks": 2, "complete": False}))
    head, row, cut = command("runs", "--group-by", "lr", "-c", "metric.loss").out.splitlines()
    assert "metric.loss.last mean" in head
    assert row.split() == ["0.1", "2", "1.5", "0.5", "1", "2"]
    assert "there may be more" in cut


@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_a_file_is_written_unchanged(api: FakeApi, command: Command, tmp_path: Path, form: str) -> None:
    api.on("GET", "/runs/export", Reply(b"id,name\r\nx,y\r\n", headers={"Content-Type": "text/csv"}))
    path = tmp_path / "runs"
    assert command("runs", "tag:a", "--format", form, "--file", str(path)).code == 0
    assert path.read_bytes() == b"id,name\r\nx,y\r\n"
    assert api.list_requests("GET", "/runs/export")[0].query["format"] == form
