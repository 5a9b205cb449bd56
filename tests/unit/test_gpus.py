"""How fast and how hot GPUs are, as `nvidia-smi` prints it."""

import os
import stat
from pathlib import Path

import pytest

from fermi.runner import gpus
from fermi.runner.gpus import Gpus
from tests.waiting import until

PRINTED = """0, 1980, 1980, 61, 0x0000000000000000
1, 1185, 1980, 87, 0x0000000000000020
2, 1755, 1980, 64, 0x0000000000000004
3, [N/A], 1980, 40, [Not Supported]
4, 345, 1980, 31, 0x0000000000000001
"""


def test_clocks_heat_and_why_one_is_slowed_are_read_and_an_idle_one_is_not_slowed() -> None:
    assert gpus.parse(f"index, clocks\n{PRINTED}nonsense, 1") == {
        0: {"clock": 1980, "most": 1980, "temperature": 61},
        1: {"clock": 1185, "most": 1980, "temperature": 87, "slowed": "heat"},
        2: {"clock": 1755, "most": 1980, "temperature": 64, "slowed": "power"},
        3: {"most": 1980, "temperature": 40},
        4: {"clock": 345, "most": 1980, "temperature": 31},
    }


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpus, "indices", lambda pid: {1} if pid == os.getpid() else set())


def test_the_program_is_asked_beside_the_training_and_only_where_a_rank_has_a_gpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, opened: None
) -> None:
    program = tmp_path / "nvidia-smi"
    program.write_text(f"#!/bin/sh\ncat <<'END'\n{PRINTED}END\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    node = Gpus()
    node.look(100.0, [1])
    assert node._beside._process is None
    node.look(200.0, [os.getpid()])

    def told() -> bool:
        node.look(201.0, [os.getpid()])
        return bool(node.told)

    until(told, what="the answer")
    assert (node.of(os.getpid()) or {})["temperature"] == 87


def test_without_the_program_nothing_is_known(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, opened: None) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    node = Gpus()
    node.look(100.0, [os.getpid()])
    node.look(101.0, [os.getpid()])
    assert node.of(os.getpid()) is None
