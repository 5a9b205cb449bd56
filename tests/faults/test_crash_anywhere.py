"""Killing the reconciler at any line loses nothing and starts nothing twice (see `crash.py`)."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fakes.kubernetes.fixtures import kubernetes
from tests.platform_process import free_port
from tests.sampling import ALL, stride

__all__ = ["kubernetes"]
pytestmark = pytest.mark.faults
ROOT = Path(__file__).resolve().parents[2]


def check_lives(scenario: str, every: int, scratch: Path, state: str, starts: dict[str, int], *more: str) -> None:
    """Each life is looked at as it ends: the first that went wrong ends the test."""
    path = os.pathsep.join([str(ROOT), str(ROOT / "platform")])
    stderr = scratch.with_suffix(".stderr")
    first, every = stride(every, 8)
    with stderr.open("w") as errors, subprocess.Popen(
        [sys.executable, str(Path(__file__).with_name("crash.py")), scenario, str(first), str(every),
         str(scratch), str(free_port()), *more],
        env={**os.environ, "PYTHONPATH": path}, cwd=ROOT, stdout=subprocess.PIPE, stderr=errors, text=True,
    ) as running:  # fmt: skip
        try:
            found = [check(json.loads(line), scenario, state, starts) for line in running.stdout]
        except BaseException:
            running.kill()
            raise
    assert running.returncode == 0, stderr.read_text()[-4000:]
    assert len(found) > (4 if ALL else 1), "the crash points were not reached"
    assert found[-1]["code"] == 0, "the last life is the one that no crash cut short"


@pytest.mark.timeout(1000)  # some fifty lives each, of all
@pytest.mark.parametrize(
    ("scenario", "every", "state", "starts"),
    [
        ("succeed", 67, "succeeded", {"1/0": 1, "1/1": 1, "1/2": 1}),
        ("restart", 127, "succeeded", {f"{attempt}/{rank}": 1 for attempt in (1, 2) for rank in range(3)}),
        ("shrink", 307, "succeeded", {"1/0": 1, "1/1": 1, "1/2": 1, "2/0": 1}),
        ("stop", 83, "stopped", {"1/0": 1, "1/1": 1, "1/2": 1}),
        ("preempt", 599, "succeeded", {f"{attempt}/{rank}": 1 for attempt in (1, 2) for rank in range(3)}),
    ],
)
def test_a_task_ends_right_and_starts_once_wherever_the_reconciler_is_killed(scenario, every, state, starts, tmp_path):
    check_lives(scenario, every, tmp_path / "platform", state, starts)


@pytest.mark.timeout(1000)
@pytest.mark.parametrize(
    ("scenario", "every", "state"),
    [("succeed", 251, "succeeded"), ("restart", 479, "succeeded"), ("stop", 307, "stopped")],
)
def test_a_kubernetes_task_ends_right_wherever_the_reconciler_is_killed(scenario, every, state, kubernetes, tmp_path):
    kubernetes.add_node("machine")
    starts = {"1/0": 1, "1/1": 1, "1/2": 1}
    check_lives(scenario, every, tmp_path / "platform", state, starts, str(kubernetes.kubeconfig))


def check(life: dict, scenario: str, state: str, starts: dict[str, int]) -> dict:
    where = f"died at line {life['line']}: {life['place']}: {life}"
    assert life["state"] == state, where
    assert {rank: count for rank, count in life["starts"].items() if count != 1} == {}, where
    if scenario == "shrink":  # to the environment that is left
        assert life["starts"].keys() - {"1/0", "1/1", "1/2"} == {"2/0"}, where
        assert life["resized"] == 1, where
    elif scenario == "preempt":
        assert life["starts"] == starts, where
        assert (life["attempt"], life["others"]) == (2, ["succeeded"]), where
        assert life["urgent"] == {"1/0": 1, "1/1": 1, "1/2": 1}, where
    elif scenario != "restart":  # a rank of the first attempt may be ended before it wrote its line
        assert life["starts"] == starts, where
    assert life["finals"] == 1, where
    assert (life["strays"], life["leases"]) == ([], 0), where
    assert life["points"] == life["printed"], where
    assert (life["overlaps"], life["unbooked"], life["uneven"]) == (0, [], 0), where
    return life
