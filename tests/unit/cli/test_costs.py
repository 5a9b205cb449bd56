"""What was used and what it cost, from the command line."""

from typing import Any

import pytest

from fermi.cli.times import format_gpu_hours
from tests.fakes.api import FakeApi, Reply, data
from tests.unit.cli.conftest import Command

PARTS = {"starting": 1.0, "training": 16.0, "saving": 0.5, "lost": 1.0, "redone": 1.5, "idle": 0.0, "hung": 0.0}
SUM = {**PARTS, "gpuHours": 24.0, "openGpuHours": 4.0, "cost": 48.0, "goodput": 0.8, "waited": 8.0, "ettr": 0.5}
REPORT = {
    "items": [{**SUM, "key": "project-1", "name": "vision", "tasks": 3},
              {**SUM, "key": "project-2", "name": "speech", "tasks": 1, "cost": None}],
    "total": {**SUM, "gpuHours": 48.0}, "currency": "CNY", "from": "2026-11-01T00:00:00Z", "to": "2026-11-23T00:00:00Z",
}  # fmt: skip
NODE = {
    **PARTS, "environmentId": "env-1", "name": "gn4", "zone": "A", "gpuType": "A100", "gpus": 2,
    "since": "2026-11-23T00:00:00Z", "until": "2026-11-23T01:00:00Z", "open": False, "cost": 4.0, "training": 3000.0,
}  # fmt: skip
OF_TASK = {
    **PARTS, "training": 3000.0, "lost": 600.0, "idle": 0.2, "queuedSeconds": 90.0, "heldSeconds": 3600.0,
    "gpuHours": 2.0, "cost": 4.0, "currency": "CNY", "goodput": 0.8333, "ettr": 0.8125,
    "modelFlops": {"tflops": 499.2, "peakTflops": 1248.0, "utilisation": 0.4}, "nodes": [NODE, {**NODE, "open": True}],
}  # fmt: skip


def price(kind: str, zone: str, amount: float) -> dict[str, Any]:
    since = "2026-11-01T00:00:00Z"
    return {"gpuType": kind, "zoneId": zone, "zoneName": zone.upper(), "perGpuHour": amount, "since": since}


def test_a_report_has_a_line_per_group_and_a_total(api: FakeApi, command: Command) -> None:
    api.on("GET", "/usage", data(REPORT))
    head, vision, speech, total = command("usage", "--by", "project", "--from", "2026-11-01").out.splitlines()
    for word in ("GPU-hours", "Redone", "Held now", "Cost (CNY)", "Goodput"):
        assert word in head
    assert vision.split() == ["vision", "24", "16", "1", "30m", "1", "1.5", "0", "0", "4", "48.00", "80.0%", "50.0%"]
    assert speech.split()[-3:] == ["-", "80.0%", "50.0%"]
    assert total.startswith("Total")
    assert api.list_requests("GET", "/usage")[0].query == {"by": "project", "from": "2026-11-01T00:00:00+00:00"}
    assert "neither a day" in command("usage", "--to", "soon").err


@pytest.mark.parametrize(
    ("hours", "shown"),
    [(24.004, 24.0), (1.0, 1.0), (0.9999, "1h"), (0.5, "30m"), (0.2083, "12m 30s"), (0.00963, "35s"), (1e-6, "1s"),
     (0.0, 0.0), (None, None)],
)  # fmt: skip
def test_less_than_a_gpu_hour_is_shown_as_a_duration(hours: float | None, shown: float | str | None) -> None:
    assert format_gpu_hours(hours) == shown


def test_csv_is_printed_unchanged(api: FakeApi, command: Command) -> None:
    api.on("GET", "/usage", Reply(b"key,name\r\nann,ann\r\n", headers={"Content-Type": "text/csv"}))
    assert command("usage", "--by", "user", "--csv").out.split() == ["key,name", "ann,ann"]
    assert api.list_requests("GET", "/usage")[0].query == {"by": "user", "format": "csv"}


def test_a_task_shows_its_time_breakdown(api: FakeApi, command: Command) -> None:
    api.on("GET", "/training-tasks/task-1/usage", data(OF_TASK))
    said = command("usage", "task-1").out
    for word in (
        "1m 30s",
        "1h",
        "50m",
        "Lost",
        "10m",
        "4.00 CNY",
        "83.3%",
        "81.2%",
        "40.0% (499.2 of 1248 TFLOPS)",
        "gn4",
        "A100",
        "now",
    ):
        assert word in said
    assert "40.0% (499.2 of 1248 TFLOPS)" in said
    assert "Idle" not in said, "less than a second of it"
    assert "有效占比" in command("usage", "task-1", lang="zh").out


def test_single_prices_are_set_and_others_kept(api: FakeApi, command: Command) -> None:
    api.on("GET", "/prices", data({"currency": "CNY", "prices": [price("A100", "", 10.0), price("V100", "a", 4.0)]}))
    api.on("PUT", "/prices", data({"currency": "CNY", "prices": [price("", "", 1.5)]}))
    assert "per GPU-hour" in command("prices").out
    said = command("prices", "--set", "*=1.5", "--set", "V100@A=5", "--remove", "A100").out
    assert "1.5" in said
    [sent] = api.list_requests("PUT", "/prices")
    assert sent.body == {"prices": [
        {"gpuType": "V100", "zoneId": "a", "perGpuHour": 5.0}, {"gpuType": "", "zoneId": "", "perGpuHour": 1.5},
    ]}  # fmt: skip
    assert "A100=cheap" in command("prices", "--set", "A100=cheap").err
