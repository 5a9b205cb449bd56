"""`nvidia-smi`: what it is asked, how its answers are read, and that nobody waits for it."""

import os
from pathlib import Path

import pytest

from fermi.telemetry import nvidia_smi, slow_command
from fermi.telemetry.slow_command import BackgroundCommand
from tests.polling import until


@pytest.fixture
def tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    program = tmp_path / "nvidia-smi"
    program.touch(0o755)
    return program


def test_rows_are_parsed_by_field_and_missing_values_left_out(tool: Path) -> None:
    tool.write_text(
        """#!/bin/sh
[ "$*" = "--query-gpu=index,power.draw,name --format=csv,noheader,nounits" ] || exit 2
echo "0, 250.50, NVIDIA H200"
echo "1, [Not Supported], Odd, with commas"
echo "nonsense"
""",
        encoding="utf-8",
    )
    rows = nvidia_smi.run_query(("index", "power.draw", "name"))
    assert rows == [
        {"index": "0", "power.draw": "250.50", "name": "NVIDIA H200"},
        {"index": "1", "name": "Odd, with commas"},
    ]
    assert (nvidia_smi.get_number(rows[0], "power.draw"), nvidia_smi.get_number(rows[1], "power.draw")) == (250.5, None)
    assert (nvidia_smi.get_int(rows[1], "index"), nvidia_smi.get_int(rows[0], "power.draw")) == (1, None)


@pytest.mark.parametrize("script", ["#!/bin/sh\necho '0, 1'; exit 9", "#!/bin/sh\nexec sleep 60", "#!/nowhere"])
def test_a_failing_or_hanging_tool_reports_nothing(tool: Path, script: str) -> None:
    tool.write_text(script, encoding="utf-8")
    assert nvidia_smi.run_query(("index", "name"), seconds=0.2) is None


def test_a_machine_without_the_tool_has_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    assert nvidia_smi.run_query(("index", "name")) is None


@pytest.mark.parametrize(("mask", "told"), [
    (0x40 | 0x08, ["heat", "hardware"]), ("0x0000000000000004", ["power"]), ("0x1", []), (0x200, ["other"]),
    ("Not Active", []), (None, []),
])  # fmt: skip
def test_a_mask_becomes_throttle_reasons(mask: str | int | None, told: list[str]) -> None:
    assert nvidia_smi.list_slowdown_reasons(mask) == told


@pytest.mark.parametrize(("visible", "expected"), [
    (None, [0, 1, 2]), ("", []), ("2,0", [2, 0]), ("GPU-b", [1]), ("1,7,0", [1]), ("0,0", [0]), ("nonsense", []),
])  # fmt: skip
def test_visible_devices_are_parsed_as_by_cuda(visible: str | None, expected: list[int]) -> None:
    assert nvidia_smi.list_visible_gpus(visible, ["GPU-aaa", "GPU-bbb", "GPU-ccc"]) == expected


def answer(asked: BackgroundCommand, now: float) -> str:
    said: list[str] = []
    until(lambda: (text := asked.poll(now)) is not None and (said.append(text) or True), what="the answer")
    return said[0]


def test_a_background_command_runs_once_per_period_and_failures_are_empty() -> None:
    asked = BackgroundCommand(15.0)
    assert asked.is_due(100.0)
    asked.start(["echo", "ready"], 100.0)
    assert not asked.is_due(130.0)  # the one before has not been read
    assert answer(asked, 100.0) == "ready\n"
    assert not asked.is_due(114.9)
    assert asked.is_due(115.0)
    asked.start(["sh", "-c", "echo half; exit 15"], 115.0)
    assert answer(asked, 115.0) == ""
    asked.start(["/nowhere/nvidia-smi"], 130.0)
    assert asked.poll(130.0) is None


def test_a_background_command_is_killed_after_its_timeout() -> None:
    asked = BackgroundCommand(15.0)
    asked.start(["sleep", "600"], 0.0)
    assert asked.poll(slow_command.TIMEOUT_SECONDS) is None
    assert asked.poll(slow_command.TIMEOUT_SECONDS + 1) == ""
    until(lambda: asked.poll(slow_command.TIMEOUT_SECONDS + 1) is None, what="its end")
    assert asked.is_due(slow_command.TIMEOUT_SECONDS + 2)
