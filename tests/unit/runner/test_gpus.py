"""How fast and how hot GPUs are, as `nvidia-smi` prints it."""

import os
import re
import stat
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

from fermi.runner import gpus
from fermi.runner.gpus import GpuMonitor
from fermi.runner.watch import RankWatcher
from tests.polling import until

PRINTED = """0, 1980, 1980, 61, 0x0000000000000000
1, 1185, 1980, 87, 0x0000000000000020
2, 1755, 1980, 64, 0x0000000000000004
3, [N/A], 1980, 40, [Not Supported]
4, 345, 1980, 31, 0x0000000000000001
"""


def test_clocks_temperature_and_throttle_reasons_are_read() -> None:
    assert gpus.parse_figures(f"index, clocks\n{PRINTED}nonsense, 1") == {
        0: {"clock": 1980, "most": 1980, "temperature": 61},
        1: {"clock": 1185, "most": 1980, "temperature": 87, "slowed": "heat"},
        2: {"clock": 1755, "most": 1980, "temperature": 64, "slowed": "power"},
        3: {"most": 1980, "temperature": 40},
        4: {"clock": 345, "most": 1980, "temperature": 31},
    }


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpus, "list_open_gpus", lambda pid: {1} if pid == os.getpid() else set())


def test_the_program_runs_in_the_background_and_only_where_a_rank_has_a_gpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, opened: None
) -> None:
    program = tmp_path / "nvidia-smi"
    program.write_text(f"#!/bin/sh\ncat <<'END'\n{PRINTED}END\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    node = GpuMonitor()
    node.update(100.0, [1])
    assert node._beside._process is None
    node.update(200.0, [os.getpid()])

    def told() -> bool:
        node.update(201.0, [os.getpid()])
        return bool(node.told)

    until(told, what="the answer")
    assert (node.find_figures(os.getpid()) or {})["temperature"] == 87


def test_without_the_program_nothing_is_reported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, opened: None) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    node = GpuMonitor()
    node.update(100.0, [os.getpid()])
    node.update(101.0, [os.getpid()])
    assert node.find_figures(os.getpid()) is None


@pytest.fixture
def devices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Files that stand in for `/dev/nvidia0` and `/dev/nvidia1`."""
    monkeypatch.setattr(gpus, "DEVICE_GLOB", f"{tmp_path}/nvidia[0-9]*")
    monkeypatch.setattr(gpus, "DEVICE_PATTERN", re.compile(rf"{tmp_path}/nvidia(\d+)"))
    for name in ("nvidia0", "nvidia1", "nvidiactl"):
        (tmp_path / name).touch()
    return tmp_path


def test_open_gpus_are_found_in_file_descriptors(devices: Path) -> None:
    assert gpus.has_nvidia_gpus()
    with (devices / "nvidiactl").open():  # NVML's clients have this one, and no GPU
        assert gpus.has_gpu_open([os.getpid()]) is False
    with (devices / "nvidia1").open():
        assert gpus.has_gpu_open([os.getpid()]) is True
        assert gpus.list_open_gpus(os.getpid()) == {1}
    child = subprocess.Popen(["true"])
    child.wait()
    assert gpus.has_gpu_open([child.pid, os.getpid()]) is False
    assert gpus.has_gpu_open([]) is None


def test_unreadable_values_are_unknown(devices: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(folder: str) -> list[str]:
        raise PermissionError(13, "Permission denied", folder)

    monkeypatch.setattr(os, "listdir", refuse)
    assert gpus.has_gpu_open([os.getpid()]) is None


OPENS = """
import sys
kept = []
for line in sys.stdin:
    kept.append(open(line.strip()))
    print("opened", flush=True)
"""


class Silent:
    """A rank's output that never grows."""

    def size(self) -> int:
        return 0

    def tail(self) -> bytes:
        return b""

    def append_frames(self, records: Iterable[bytes]) -> None: ...


def test_a_training_rank_is_checked_for_its_gpu_until_it_has_one_open(devices: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", OPENS], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as rank:
        assert rank.stdin
        assert rank.stdout
        watch = RankWatcher(".")
        watch.add({"rank": 0, "pid": rank.pid, "error": None, "stalled": None, "exit_code": None}, Silent())
        one = watch.watched[0]

        def look_again() -> bool | None:
            watch.due = watch.gpus_at = 0.0
            watch.update()
            return one.gpu_open

        assert look_again() is None  # it may still load its data
        one.pulse.figures = gpus.MIN_STEPS
        assert look_again() is False
        rank.stdin.write(f"{devices / 'nvidia0'}\n")
        rank.stdin.flush()
        assert rank.stdout.readline() == "opened\n"
        assert look_again() is True
        rank.stdin.close()
    watch.ended(one.entry)
