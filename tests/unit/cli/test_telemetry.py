"""What machines use, in a terminal."""

import json
from typing import Any

from fermi.cli.commands.telemetry import draw_sparkline
from tests.fakes.api import FakeApi, data, refused
from tests.unit.cli.conftest import Command


def series(metric: str, unit: str, values: list[float | None], **more: Any) -> dict[str, Any]:
    return {"metric": metric, "unit": unit, "index": "0", "node": 0, "rank": 2, "values": values, "most": None, **more}


FOUND = {
    "from": "2026-11-23T00:00:00Z", "to": "2026-11-23T00:01:00Z", "stepSeconds": 15, "emulated": True, "tasks": [],
    "series": [
        series("gpu", "%", [0, None, 50, 100], most=[10, None, 60, 100]),
        series("gpu_memory", "B", [2**30, 2**31, None, None]),
        series("received", "B/s", [2**20, 2**20, 2**20, 2**20], index="eth0", rank=None),
    ],
}  # fmt: skip


def test_a_task_is_shown_as_sparklines_with_numbers(api: FakeApi, command: Command) -> None:
    api.on("GET", "/training-tasks/task-1/telemetry", data(FOUND))
    said = command("telemetry", "task-1", "--metric", "gpu", "--metric", "received", "--rank", "2", "--since", "6h")
    rows = [line.split() for line in said.out.splitlines()]
    assert ["0", "2", "0", "▁·▅█", "100", "%", "50", "%", "100", "%"] in rows
    assert ["0", "2", "0", "▅█··", "-", "1.5", "GiB", "2", "GiB"] in rows
    assert ["0", "-", "eth0", "████", *["1", "MiB/s"] * 3] in rows
    assert "GPUs are emulated" in said.out
    asked = api.list_requests("GET", "/training-tasks/task-1/telemetry")[0].query
    assert (asked["rank"], asked["points"]) == ("2", "40")
    assert asked["from"] < asked.get("to", "9")


def test_an_unknown_environment_may_be_a_worker(api: FakeApi, command: Command) -> None:
    api.on("GET", "/dev-environments", data({"items": [], "total": 0}))
    api.on("GET", "/dev-environments/gn6-0/telemetry", refused(404, "NOT_FOUND"))
    api.on("GET", "/workers/gn6-0/telemetry", data({**FOUND, "series": []}))
    assert "没有测量数据" in command("telemetry", "gn6-0", lang="zh").out
    assert json.loads(command("telemetry", "gn6-0", "-o", "json").out)["stepSeconds"] == 15
    assert command("telemetry", "gn6-0", "--rank", "1").code == 2
    assert command("telemetry", "gn6-0", "--since", "soon").code == 2


def test_sparklines_span_zero_to_maximum() -> None:
    assert draw_sparkline([0, 50, 100, None, -5, 200], 100) == "▁▅█·▁█"
    assert draw_sparkline([0, 0], 0) == "▁▁"
