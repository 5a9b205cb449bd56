"""Killing the reconciler at any line loses nothing and starts nothing twice (see `crash.py`)."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fakes.kubernetes.fixtures import kubernetes
from tests.running import free_port

__all__ = ["kubernetes"]
pytestmark = pytest.mark.faults
ROOT = Path(__file__).resolve().parents[2]


def lives(scenario: str, every: int, scratch: Path, *more: str) -> list[dict]:
    path = os.pathsep.join([str(ROOT), str(ROOT / "platform")])
    done = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("crash.py")), scenario, str(every), str(scratch),
         str(free_port()), *more],
        env={**os.environ, "PYTHONPATH": path}, cwd=ROOT, capture_output=True, text=True, timeout=900,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-4000:]
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(found) > 4, "the crash points were not reached"
    assert found[-1]["code"] == 0, "the last life is the one that no crash cut short"
    return found


@pytest.mark.timeout(1000)  # some fifty lives each
@pytest.mark.parametrize(
    ("scenario", "every", "state", "starts"),
    [
        ("succeed", 37, "succeeded", {"1/0": 1, "1/1": 1, "1/2": 1}),
        ("restart", 83, "succeeded", {f"{attempt}/{rank}": 1 for attempt in (1, 2) for rank in range(3)}),
        ("stop", 47, "stopped", {"1/0": 1, "1/1": 1, "1/2": 1}),
    ],
)
def test_a_task_ends_right_and_starts_once_wherever_the_reconciler_dies(scenario, every, state, starts, tmp_path):
    check(lives(scenario, every, tmp_path), scenario, state, starts)


@pytest.mark.timeout(1000)
@pytest.mark.parametrize(
    ("scenario", "every", "state"),
    [("succeed", 173, "succeeded"), ("restart", 331, "succeeded"), ("stop", 211, "stopped")],
)
def test_the_same_on_kubernetes(scenario, every, state, kubernetes, tmp_path):
    kubernetes.add_node("machine")
    starts = {"1/0": 1, "1/1": 1, "1/2": 1}
    check(lives(scenario, every, tmp_path / "platform", str(kubernetes.kubeconfig)), scenario, state, starts)


def check(found: list[dict], scenario: str, state: str, starts: dict[str, int]) -> None:
    for life in found:
        where = f"died at line {life['line']}: {life['place']}: {life}"
        assert life["state"] == state, where
        assert {rank: count for rank, count in life["starts"].items() if count != 1} == {}, where
        if scenario != "restart":  # a rank of the first attempt may be ended before it wrote its line
            assert life["starts"] == starts, where
        assert life["finals"] == 1, where
        assert (life["strays"], life["leases"]) == ([], 0), where
        assert life["points"] == life["printed"], where
