"""Pre-flight tests on the real platform: asked for with the command, and as the first stage of a task."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.platform_process import WARM, Running, free_port
from tests.polling import until

pytestmark = pytest.mark.e2e

FEW_STEPS = {"totalSteps": 5, "evalEvery": 0, "evalBatches": 1}
OF_THE_MACHINE = {"PREFLIGHT_DISK_LOW", "PREFLIGHT_SHM_LOW"}
"""What a machine that runs these tests may really lack."""


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """With patience: on a busy machine the nodes of a test may start far apart."""
    running = Running(tmp_path_factory.mktemp("platform") / "data", FERMI_PREFLIGHT_PATIENCE="120", **WARM).start()
    yield running
    running.close()


def fermi(platform: Running, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "fermi.cli", *arguments, "--lang", "en"]
    return subprocess.run(command, env=platform.env, capture_output=True, text=True, timeout=240)


def test_two_environments_are_fully_tested_and_released(platform):
    answer = fermi(platform, "preflight", "env-001", "env-002", "--full", "--json")
    assert answer.returncode == 0, answer.stdout + answer.stderr
    found = json.loads(answer.stdout)
    assert found["status"] == "done"
    assert {culprit["code"] for culprit in found["verdict"]["culprits"]} <= OF_THE_MACHINE, found
    assert [(pair["from"], pair["to"], pair["level"]) for pair in found["pairs"]] == [
        ("env-001", "env-002", "pass"), ("env-002", "env-001", "pass"),
    ]  # fmt: skip
    assert all(pair["rttMs"] and pair["bandwidthMbps"] for pair in found["pairs"])
    assert found["together"]["allReduceMs"] > 0
    held = [platform.get(f"/dev-environments/{name}")["heldBy"] for name in ("env-001", "env-002")]
    assert held == [None, None]
    assert platform.strays() == []


def test_a_task_starts_after_its_preflight_test_whatever_process_dies(platform):
    task_id = platform.create(["env-001", "env-002"], preflight="quick", hyperparameters=FEW_STEPS)
    until(lambda: platform.task(task_id)["preflightId"], what="the test is under way")
    platform.kill("worker", "watch")
    task = platform.until_state(task_id, "succeeded", seconds=240)
    assert platform.get(f"/preflights/{task['preflightId']}")["taskId"] == task_id
    codes = [event["code"] for event in platform.items(task_id, "events", pageSize=200)]
    assert [codes.count(code) for code in ("PREFLIGHT_BEGAN", "PREFLIGHT_FIT", "ATTEMPT_BEGAN")] == [1, 1, 1]
    assert codes.index("PREFLIGHT_BEGAN") < codes.index("PREFLIGHT_FIT") < codes.index("ATTEMPT_BEGAN")


def test_a_task_on_bad_nodes_fails_before_its_first_attempt(platform):
    task_id = platform.create(["env-001", "env-002"], preflight="quick", env={"GLOO_SOCKET_IFNAME": "ib9"})
    task = platform.until_state(task_id, "failed", seconds=240)
    assert (task["attempt"], task["reason"]["code"]) == (0, "PREFLIGHT_FAILED")
    assert "GLOO_SOCKET_IFNAME=ib9" in task["reason"]["message"]
    assert "pytorch-dev-env" in task["reason"]["message"]
    shown = fermi(platform, "get", task_id)
    assert task["preflightId"] in shown.stdout


def test_two_nodes_tested_by_hand_show_the_matrix(tmp_path):
    """No platform: each as `fermi preflight` on a machine of its own."""
    env = {name: value for name, value in os.environ.items() if name not in ("RANK", "WORLD_SIZE")}
    place = ["--nnodes", "2", "--master-addr", "127.0.0.1", "--master-port", str(free_port()), "--lang", "en"]
    command = [sys.executable, "-m", "fermi.cli", "preflight", *place]
    env["PYTHONPATH"] = os.pathsep.join(sys.path)
    nodes = [
        subprocess.Popen(
            [*command, "--node-rank", str(rank), "--name", f"gn{rank}"], env=env, cwd=tmp_path, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )
        for rank in (0, 1)
    ]  # fmt: skip
    said = [node.communicate(timeout=240) for node in nodes]
    assert [node.returncode for node in nodes] == [0, 0], said
    assert "gn1" in said[0][0]
    assert "Ready to train" in said[0][0]
    assert "shows the result" in said[1][1]
