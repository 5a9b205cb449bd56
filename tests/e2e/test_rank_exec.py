"""`fermi shell TASK --rank`: beside ranks that the real platform runs, in environments that it has not made."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pexpect
import pytest

from tests.agents import Host
from tests.platform_process import WARM, Running
from tests.polling import until

pytestmark = pytest.mark.e2e
SETTINGS = WARM

SCRIPT = """
import os, time
print("on", flush=True)
while not os.path.exists("over"):
    time.sleep(0.1)
"""
SHOW = 'echo "$RANK of $WORLD_SIZE, $COLOUR, ${WORD:-no word}, in $PWD"; sleep 600 & echo "left $!"; exit 5'


def begin(platform: Running, environment: str, workspace: Path) -> str:
    workspace.mkdir(exist_ok=True)
    (workspace / "waits.py").write_text(SCRIPT, encoding="utf-8")
    (workspace / "over").unlink(missing_ok=True)
    task = platform.create(
        [environment], entrypoint={"script": "waits.py", "args": []}, env={"COLOUR": "red"},
        datasetId=None, datasetVersionId=None, modelId=None,
    )  # fmt: skip
    platform.until_state(task, "running", seconds=180)
    until(lambda: "on" in platform.log(task, 1), what="both ranks run")
    return task


def shell(platform: Running, task: str, rank: int) -> "pexpect.spawn[str]":
    env = {
        **platform.env,
        "FERMI_URL": platform.url,
        "FERMI_TOKEN": (platform.data / "token").read_text("utf-8").strip(),
    }
    command = ["-m", "fermi.cli", "shell", task, "--rank", str(rank)]
    return pexpect.spawn(sys.executable, command, env=env, encoding="utf-8", timeout=60, dimensions=(31, 120))


def goes_in_and_out(platform: Running, task: str, workspace: Path) -> None:
    inside = shell(platform, task, 1)
    inside.sendline(SHOW)
    inside.expect_exact(f"1 of 2, red, no word, in {workspace}")
    inside.expect(r"left (\d+)")
    left = int(inside.match.group(1))
    inside.expect(pexpect.EOF)
    inside.close()
    assert inside.exitstatus == 5
    until(lambda: not Path(f"/proc/{left}").exists(), what="what it left behind is gone")
    (workspace / "over").touch()
    platform.until_state(task, "succeeded", seconds=120)
    late = shell(platform, task, 1)
    late.expect_exact("Rank 1 of test is not running")
    late.expect(pexpect.EOF)


def test_a_command_runs_next_to_a_rank_in_a_registered_environment(platform: Running) -> None:
    asked = {"name": "registered", "clusterId": "local", "gpuCount": 2}
    row = next(iter(platform.get("/dev-environments")["items"]))
    asked |= {"projectId": row["projectId"], "zone": row["zone"]["name"], "gpuType": "A100", "emulated": True}
    made = platform.api.post("/dev-environments", json=asked)
    assert made.status_code == 201, made.text
    workspace = platform.data / "workspace"
    task = begin(platform, made.json()["data"]["id"], workspace)
    goes_in_and_out(platform, task, workspace)


@pytest.fixture
def host(platform: Running, tmp_path: Path) -> Iterator[Host]:
    token = platform.api.post("/workers/join-tokens", json={"name": "lab"}).raise_for_status().json()["data"]["token"]
    running = Host(platform, tmp_path / "gn6", "gn6", 2, token).start()
    yield running
    running.close()


def test_a_command_runs_next_to_a_rank_on_a_workers_host(platform: Running, host: Host) -> None:
    [found] = [row for row in platform.get("/dev-environments", search="gn6")["items"] if row["name"] == "gn6"]
    task = begin(platform, found["id"], host.workspace)
    goes_in_and_out(platform, task, host.workspace)


def test_a_command_ends_with_its_web_process(platform: Running) -> None:
    [row] = platform.get("/dev-environments", search="registered")["items"]
    workspace = platform.data / "workspace"
    task = begin(platform, row["id"], workspace)
    inside = shell(platform, task, 0)
    inside.sendline("sleep 600 & echo left $!")
    inside.expect(r"left (\d+)")
    left = int(inside.match.group(1))
    assert os.path.exists(f"/proc/{left}")
    platform.kill("web")
    until(lambda: not Path(f"/proc/{left}").exists(), what="nothing of the command is left")
    inside.close(force=True)
    until(platform.is_up, what="the platform serves again")
    (workspace / "over").touch()
    platform.until_state(task, "succeeded", seconds=120)
