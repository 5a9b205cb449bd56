"""A member's script on the real platform: what it gets of the platform's own."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from fermi.runner import sandbox
from fermi.runner.record_frames import strip_frames
from tests.agents import Host
from tests.isolation import intruder
from tests.platform_process import ROOT, WARM, Running
from tests.polling import until

pytestmark = pytest.mark.e2e
SETTINGS = WARM

KEPT = ("token", "secret_key", "fermi.sqlite3", "run/broker.conf", "run/processes.json")


@pytest.mark.skipif(not sandbox.read_landlock_abi(), reason="this kernel has no Landlock, or it is turned off")
def test_a_members_script_cannot_reach_the_platforms_files(platform: Running) -> None:
    """Its files, the environment and memory of its processes, its broker, and another task's folders."""
    data = platform.data
    other = platform.create(["env-001"], hyperparameters={"totalSteps": 20, "checkpointEvery": 10})
    platform.until_state(other, "succeeded", seconds=300)
    [checkpoint, *_] = [item["path"] for item in platform.items(other, "checkpoints")]
    files = [*(str(data / name) for name in KEPT if (data / name).exists()), checkpoint,
             str(data / "logs" / other / "1" / "0.log"), str(data / "runs" / f"{other}-1" / "node-0.json")]  # fmt: skip
    existing = [path for path in files if Path(path).exists()]
    assert {checkpoint, str(data / "token")} <= {*existing}
    order = {
        "read": existing, "write": [*existing, str(ROOT / "manage.py")], "replace": existing,
        "link": [str(data / "planted"), str(data / "checkpoints" / "planted")],
        "pids": [entry["pid"] for entry in platform.processes().values()],
        "sockets": [str(data / "run" / "broker.sock")], "free": [str(data / "workspace")],
        "use": [str(next((data / "datasets").glob("*/train.bin")))],
    }  # fmt: skip
    (data / "workspace").mkdir(exist_ok=True)
    shutil.copy(intruder.__file__, data / "workspace" / "intruder.py")
    (data / "workspace" / "what.json").write_text(json.dumps(order))
    entrypoint = {"script": "intruder.py", "args": ["what.json"]}
    task = platform.create(["env-001"], entrypoint=entrypoint, datasetId=None, datasetVersionId=None, modelId=None)
    platform.until_state(task, "succeeded", seconds=300)
    seen = json.loads(platform.log(task).splitlines()[-1])
    assert intruder.harmful(seen["got"]) == []
    assert seen["broken"] == []
    words = [(data / "token").read_text().strip(), (data / "run" / "broker.conf").read_text().split()[1]]
    assert not [name for name, value in seen["env"].items() if any(word in value for word in words)]


@pytest.mark.skipif(not sandbox.read_landlock_abi(), reason="this kernel has no Landlock, or it is turned off")
def test_a_script_on_a_workers_host_cannot_reach_the_agents_files(platform: Running, tmp_path: Path) -> None:
    """Its tokens, state, environment and memory; nor, in the platform's data directory, what is another task's."""
    token = platform.api.post("/workers/join-tokens", json={"name": "lab"}).raise_for_status().json()["data"]["token"]
    host = Host(platform, tmp_path / "gn6", "gn6", 1, token).start()
    try:
        state, data = host.folder / "state", platform.data
        assert host.agent is not None
        files = [str(path) for path in (host.config, state / "machine", state / "workers/gn6-0/secret", data / "token")]
        other = data / "checkpoints" / "of-another-task"
        other.mkdir(parents=True)
        (other / "step-1.pt").write_text("weights")
        order = {
            "read": [*files, str(other / "step-1.pt")], "write": files, "replace": [*files, str(other)],
            "link": [str(state / "planted"), str(other / "planted")], "pids": [host.agent.pid], "sockets": [],
            "use": [str(next((data / "datasets").glob("*/train.bin")))], "free": [str(host.workspace)],
        }  # fmt: skip
        shutil.copy(intruder.__file__, host.workspace / "intruder.py")
        (host.workspace / "what.json").write_text(json.dumps(order))
        [environment] = [
            row for row in platform.get("/dev-environments", search="gn6")["items"] if row["name"] == "gn6"
        ]
        entrypoint = {"script": "intruder.py", "args": ["what.json"]}
        task = platform.create(
            [environment["id"]], entrypoint=entrypoint, datasetId=None, datasetVersionId=None, modelId=None
        )
        platform.until_state(task, "succeeded", seconds=300)
        seen = json.loads(strip_frames(host.log(task, 1, 0).read_bytes()).decode().splitlines()[-1])
        assert (intruder.harmful(seen["got"]), seen["broken"]) == ([], [])
        assert "Landlock isolates ranks" in (host.folder / "agent.out").read_text()
    finally:
        host.close()


def test_a_join_token_is_removed_from_the_command_line(platform: Running, tmp_path: Path) -> None:
    token = platform.api.post("/workers/join-tokens", json={"name": "lab"}).raise_for_status().json()["data"]["token"]
    command = [sys.executable, "-m", "fermi.cli", "worker", "--server", platform.url, "--token", token,
               "--id", "gn9-0", "--emulate", "--state", str(tmp_path / "state")]  # fmt: skip
    agent = subprocess.Popen(command, env=platform.env, cwd=ROOT, stderr=subprocess.DEVNULL, start_new_session=True)
    try:
        until(lambda: [row for row in platform.get("/workers", search="gn9-0")["items"] if row["status"] == "online"])
        shown = Path(f"/proc/{agent.pid}/cmdline").read_bytes().decode().split("\0")
        assert "gn9-0" in shown
        assert token not in shown
    finally:
        agent.kill()
        agent.wait()
