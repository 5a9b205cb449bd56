"""An update in place from the commit before modules got other names: training and environments that were started by the
old names go on, and are steered by the new code."""

import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from fermi.client import Fermi
from tests import previous_release
from tests.e2e.test_environment_lifecycle import act, hosted, make, until_is
from tests.platform_process import ROOT, WARM, Running
from tests.polling import until

pytestmark = pytest.mark.e2e

BEFORE = "ae5150ff397700dcb55fa0fe08eb007aa2fd2fc3"
LONG = {"totalSteps": 100_000, "stepDelay": 0.05, "checkpointEvery": 5, "evalEvery": 100_000, "evalBatches": 1}


@pytest.fixture
def platform(tmp_path: Path) -> Iterator[Running]:
    """Runs the old code, from a folder in which it can be replaced."""
    code = tmp_path / "code"
    if not previous_release.tree(code, BEFORE):
        pytest.skip("this checkout has no history with the commit before the new names")
    running = Running(tmp_path / "data", **WARM, PYTHONPATH=f"{code}:{code / 'platform'}")
    running.root, running.fresh = code, True
    yield running.start()
    running.close()


def replace_code(folder: Path) -> None:
    """Put this checkout's files in place of the old ones, as `git pull` does."""
    listed = ["git", "-C", str(ROOT), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listed, check=True, capture_output=True, text=True).stdout.split("\0")
    shutil.rmtree(folder)
    for name in names:
        if name and (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / name)


def step(platform: Running, task: str) -> int:
    return max((point["step"] for point in platform.items(task, "metrics", limit=5000)), default=0)


def test_running_tasks_and_environments_survive_an_update(platform: Running) -> None:
    task = platform.create(["env-001", "env-002"], hyperparameters=LONG)
    lab = make(platform, "lab", startScript="exec sleep 10000")
    platform.until_state(task, "running")
    until(lambda: step(platform, task) > 0, what="it trains")
    until_is(platform, lab, "running")
    pid = platform.rank_pid(task, 0)
    platform.interrupt()

    replace_code(platform.root)
    platform.start()
    reached = step(platform, task)
    until(lambda: step(platform, task) > reached + 5, what="it trains on, and is read")
    assert (platform.task(task)["attempt"], platform.rank_pid(task, 0)) == (1, pid)
    with Fermi(platform.url, (platform.data / "token").read_text("utf-8").strip()) as client:
        assert client.environments.run(lab, ["echo", "here"]).stdout == b"here\n", "its daemon was started before"
    assert (hosted(platform, lab)["state"], hosted(platform, lab)["run"]) == ("running", 1)

    until(lambda: platform.items(task, "checkpoints"), what="a checkpoint")
    subprocess.run(["kill", f"-{signal.SIGKILL.value}", str(pid)], check=True)
    until(lambda: platform.task(task)["attempt"] == 2, what="the next attempt")
    platform.until_state(task, "running")
    act(platform, lab, "restart")
    until_is(platform, lab, "running", run=2)
    platform.api.post(f"/training-tasks/{task}/stop").raise_for_status()
    assert platform.until_final(task)["status"] == "stopped"
