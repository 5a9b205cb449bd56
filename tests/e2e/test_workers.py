"""Bare-metal hosts as their users have them: the real platform, real agents, a group, its script."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fermi.client import Fermi
from fermi.runner import processes
from tests import images, packages
from tests.e2e.test_environment_lifecycle import make, until_is
from tests.platform_process import ROOT, Running, free_port
from tests.podman import imported, podman, settings
from tests.polling import until
from tests.wheels import make_wheel

pytestmark = [pytest.mark.e2e, pytest.mark.database]

SCRIPT = """
import os, sys, time
import torch, torch.distributed as dist

rank, world, local = (int(os.environ[name]) for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"))
print(f"[Rank {rank}] World Size: {world}, Local Rank: {local}, Master Addr: {os.environ['MASTER_ADDR']}", flush=True)
dist.init_process_group("gloo", init_method="env://", rank=rank, world_size=world)
total = torch.ones(1) * rank
dist.all_reduce(total)
print(f"sum {int(total)} node {os.environ['NODE_RANK']} of attempt {os.environ['FERMI_ATTEMPT']}", flush=True)
line = 0
while len(sys.argv) > 1 and not os.path.exists(sys.argv[1]):
    print("line", line, flush=True)
    line += 1
    time.sleep(0.05)
print("lines", line, flush=True)
dist.destroy_process_group()
"""


YOURS = """
import torch
from examples.train_ddp import train_ddp

class YourModel(torch.nn.Sequential):
    def __init__(self):
        super().__init__(torch.nn.Linear(100, 200), torch.nn.ReLU(), torch.nn.Linear(200, 10))

if __name__ == "__main__":
    train_ddp(
        model=YourModel(),
        input_size=100,
        hidden_size=200,
        output_size=10,
        batch_size=16,
        epochs=1,
        lr=0.001
    )
"""


class Hosts:
    """Of one platform: each node an agent with a folder of its own, all on this machine."""

    def __init__(self, platform: Running, folder: Path) -> None:
        self.platform, self.folder = platform, folder
        self.workspace = folder / "workspace"
        self.workspace.mkdir(parents=True)
        (self.workspace / "train.py").write_text(SCRIPT)
        made = platform.api.post("/workers/join-tokens", json={"name": "lab"}).raise_for_status().json()["data"]
        self.token = made["token"]
        self.settings = folder / "worker.toml"
        self.settings.write_text("warm = false\n")
        self.agents: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, node: str, gpus: str = "0", **variables: str) -> None:
        command = [
            sys.executable, "-m", "fermi.cli", "worker", "--server", self.platform.url, "--token", self.token,
            "--node", node, "--gpus", gpus, "--emulate", "--state", str(self.folder / node),
            "--workspace", str(self.workspace), "--address", "127.0.0.1", "--config", str(self.settings),
        ]  # fmt: skip
        env = {**self.platform.env, "GLOO_SOCKET_IFNAME": "lo", **variables}
        with (self.folder / f"{node}.out").open("ab") as output:
            self.agents[node] = subprocess.Popen(
                command, env=env, stdout=output, stderr=output, start_new_session=True
            )  # fmt: skip
        until(lambda: node in self.online(), seconds=120, what=f"{node} is online")

    def online(self) -> set[str]:
        return {row["node"] for row in self.platform.get("/workers", status="online", pageSize=200)["items"]}

    def ranks(self, node: str) -> list[dict[str, Any]]:
        """Processes of a node's ranks that live."""
        return [rank for spec in (self.folder / node).rglob("*.status.json") for rank in _living(spec)]

    def kill(self, node: str) -> None:
        """The host loses power: the agent and everything it started is gone at once."""
        agent = self.agents.pop(node)
        os.killpg(agent.pid, signal.SIGKILL)
        agent.wait()
        for rank in self.ranks(node):
            processes.send_signal(rank, signal.SIGKILL)

    def close(self) -> None:
        for node in list(self.agents):
            agent = self.agents.pop(node)
            os.killpg(agent.pid, signal.SIGKILL)
            agent.wait()
        for spec in self.folder.rglob("*.status.json"):
            for rank in _living(spec):
                processes.send_signal(rank, signal.SIGKILL)

    def group(self, name: str, *workers: str, **settings: Any) -> str:
        body = {"name": name, "workerIds": workers, "backend": "gloo", "script": "train.py",
                "masterPort": free_port(), **settings}  # fmt: skip
        answer = self.platform.api.post("/worker-groups", json=body)
        assert answer.status_code == 201, answer.text
        return answer.json()["data"]["id"]

    def start_group(self, group: str, action: str = "start") -> str:
        answer = self.platform.api.post(f"/worker-groups/{group}/{action}")
        assert answer.status_code == 200, answer.text
        return answer.json()["data"]["task"]["id"]


def _living(spec: Path) -> list[dict[str, Any]]:
    try:
        status = json.loads(spec.read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        return []
    found = [*status["ranks"], *([status["runner"]] if status.get("runner") else [])]
    return [one for one in found if one.get("pid") and processes.is_alive(one)]


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    running = Running(tmp_path_factory.mktemp("workers") / "data", FERMI_WORKER_HEARTBEAT="2", FERMI_WORKER_LOST="30")
    running.start()
    yield running
    running.close()


@pytest.fixture
def lab(platform: Running, tmp_path: Path) -> Iterator[Hosts]:
    hosts = Hosts(platform, tmp_path)
    yield hosts
    hosts.close()
    for row in platform.get("/worker-groups")["items"]:
        platform.api.post(f"/worker-groups/{row['id']}/stop")


def test_a_group_trains_as_in_the_document(platform: Running, lab: Hosts) -> None:
    shutil.copytree(ROOT / "examples", lab.workspace / "examples")
    (lab.workspace / "yours.py").write_text(YOURS)
    lab.start("gn7", "0,1")
    lab.start("gn6", "0,1")
    group = lab.group("pretrain", "gn7-0", "gn7-1", "gn6-0", "gn6-1", masterAddress="gn6", script="yours.py")
    four = lab.start_group(group)
    platform.until_state(four, "succeeded", seconds=240)
    for rank, local in enumerate([0, 1, 0, 1]):
        line = f"[Rank {rank}] World Size: 4, Local Rank: {local}, Master Addr: 127.0.0.1"
        assert line in platform.log(four, rank).splitlines()
    workers = {row["id"]: row for row in platform.get("/workers")["items"]}
    assert [workers[f"gn6-{n}"]["rank"] for n in (0, 1)] == [0, 1]
    curve = [(point["step"], point["values"]) for point in platform.items(four, "metrics")]
    losses = {step: values["loss"] for step, values in curve if "loss" in values}
    assert losses[10] > losses[32], losses  # 2048 points, 4 x 16 to a step: 32 steps of an epoch
    assert [checkpoint["step"] for checkpoint in platform.items(four, "checkpoints")] == [32]

    with socket.create_server(("", 0)) as other:
        busy = {"port": other.getsockname()[1], "node": "gn6"}
        changed = platform.api.patch(f"/worker-groups/{group}", json={"worldSize": 2, "masterPort": busy["port"]})
        assert changed.status_code == 200, changed.text

        holder = f"(pid {os.getpid()} ("

        def warned() -> list[str]:
            return [one["message"] for one in platform.get(f"/worker-groups/{group}")["warnings"]]

        until(warned, seconds=60, what="the agent has said who listens on the port")
        assert [str(busy["port"]) in one and holder in one for one in warned()] == [True]
        two = lab.start_group(group)
        done = platform.until_state(two, "succeeded", seconds=240)
    assert len(done["attempts"]) == 1
    (said,) = (event["params"] for event in platform.items(two, "events") if event["code"] == "MASTER_PORT_BUSY")
    assert said == {**busy, "node": "gn6 (pretrain)", "holder": said["holder"], "instead": said["instead"]}
    assert said["holder"].startswith(holder[1:])
    assert said["instead"] != busy["port"]
    assert '{"event": "finished", "step": 64}' in platform.log(two, 0)

    platform.api.patch(f"/worker-groups/{group}", json={"script": "examples/test_launch.py"})
    tried = lab.start_group(group)
    platform.until_state(tried, "succeeded", seconds=240)
    assert '"wrong": []}' in platform.log(tried, 0)
    for task in (two, tried):
        line = "[Rank 1] World Size: 2, Local Rank: 1, Master Addr: 127.0.0.1"
        assert line in platform.log(task, 1).splitlines()


def test_a_platform_restart_loses_and_duplicates_nothing(platform: Running, lab: Hosts) -> None:
    lab.start("gn8")
    lab.start("gn9")
    end = lab.workspace / "end"
    task = lab.start_group(lab.group("steady", "gn8-0", "gn9-0", masterAddress="gn8", args=[str(end)]))
    until(lambda: "line 5" in platform.log(task, 1), seconds=180, what="both ranks print")
    before = platform.log(task, 1)
    platform.kill_everything()
    end.touch()
    until(lambda: not lab.ranks("gn9"), seconds=120, what="training ended while the platform was away")
    platform.start()
    done = platform.until_state(task, "succeeded", seconds=180)
    assert [attempt["number"] for attempt in done["attempts"]] == [1]
    for rank in (0, 1):
        lines = [line for line in platform.log(task, rank).splitlines() if line.startswith("line")]
        count = int(lines[-1].split()[1])
        assert lines == [*(f"line {number}" for number in range(count)), f"lines {count}"]
    assert platform.log(task, 1).startswith(before)


def test_a_lost_host_ends_the_attempt_and_the_next_one_waits_for_it(platform: Running, lab: Hosts) -> None:
    lab.start("gn10")
    lab.start("gn11")
    end = lab.workspace / "end"
    group = lab.group("fragile", "gn10-0", "gn11-0", masterAddress="gn10", args=[str(end)])
    task = lab.start_group(group)
    until(lambda: "line 5" in platform.log(task, 1), seconds=180, what="both ranks print")
    lab.kill("gn11")

    def waits() -> bool:
        seen = platform.task(task)
        return seen["status"] == "queued" and (seen["reason"] or {}).get("code") == "ENVIRONMENT_UNAVAILABLE"

    until(waits, seconds=120, what="the task waits for its environment")
    first = platform.task(task)["attempts"][0]["outcome"]
    assert first["code"] in ("WORKER_LOST", "RANK_KILLED"), first
    end.touch()
    lab.start("gn11")
    done = platform.until_state(task, "succeeded", seconds=180)
    outcomes = [attempt["outcome"] for attempt in done["attempts"]]
    assert len(outcomes) == 2, outcomes
    assert "of attempt 2" in platform.log(task, 1, attempt=2)


def test_preparation_of_hosts_is_shown_and_a_failing_one_named(platform: Running, lab: Hosts) -> None:
    lab.start("gn14", "0,1")
    lab.start("gn15")
    known = {one["name"]: one["id"] for one in platform.get("/dev-environments", pageSize=100)["items"]}
    both, gate = [known["gn14"], known["gn15"]], lab.workspace / "gate"
    task = packages.submit(platform, lab.folder, packages.tree(gate), both)
    seen = packages.until_prepared_on(platform, task, "gn14", "gn15")
    assert (seen["status"], seen["reason"]["code"]) == ("starting", "CODE_PACKAGES_PREPARING")
    gate.touch()
    done = platform.until_state(task, "succeeded", seconds=180)
    assert len(done["attempts"]) == 1
    assert [platform.log(task, rank).splitlines()[-1] for rank in range(3)] == ["trains with toy"] * 3

    broken = packages.submit(platform, lab.folder, packages.tree(gate, broken=1), both)
    reason = platform.until_state(broken, "failed", seconds=180)["reason"]
    assert reason["code"] == "CODE_PACKAGES_FAILED", reason
    assert "packages of requirements.txt could not be prepared on gn15" in reason["message"]
    assert "there is no compiler here" in reason["message"]
    until(lambda: not lab.ranks("gn14"), seconds=60, what="the other host's ranks have ended")


def test_an_environment_on_a_host_is_run_by_its_agent_and_reached_from_the_platform(
    platform: Running, lab: Hosts
) -> None:
    lab.start("gn12", "0,1")
    begun = scene(platform, "begin", "gn12")
    assert begun["engine"]["workers"] == ["gn12-0"]
    colour, folder = begun["said"].split()
    assert colour == "blue"
    assert Path(folder).is_relative_to(lab.folder / "gn12" / "hosted")
    (node,) = [one for one in platform.get("/dev-environments", pageSize=100)["items"] if one["name"] == "gn12"]
    assert node["gpuCount"] == 1, "the other worker is the environment's"

    agent = lab.agents.pop("gn12")
    os.killpg(agent.pid, signal.SIGKILL)  # the environment goes on
    agent.wait()
    lab.start("gn12", "0,1")
    assert scene(platform, "end", "gn12")["said"] == "kept\n"
    assert not (lab.folder / "gn12" / "hosted" / "environments" / "env-onhost").exists()
    assert list((lab.folder / "gn12" / "hosted" / "told").iterdir()) == []


HAS_TINY = """
import os, sys
import torch
try:
    import tiny
except ImportError:
    sys.exit("there is no tiny")
print(f"tiny by {sys.executable}, home {os.environ['HOME']}, in {os.getcwd()}", flush=True)
"""


def test_an_environment_on_a_host_trains_with_its_installed_packages(platform: Running, lab: Hosts) -> None:
    lab.start("gn16", "0,1")
    key = make(platform, "on gn16", clusterId="workers", host="gn16", gpuCount=2, emulated=True)
    until_is(platform, key, "running")
    disk = lab.folder.resolve() / "gn16" / "hosted" / "environments" / key
    with Fermi(platform.url, (platform.data / "token").read_text("utf-8").strip()) as fermi:
        assert fermi.environments.run(key, ["true"]).exit_code == 0
        (disk / "workspace" / "has_tiny.py").write_text(HAS_TINY)
        wheel = make_wheel(disk / "workspace")
        done = fermi.environments.run(key, ["pip", "install", "--no-index", wheel.name])
        assert done.exit_code == 0, done
    asked = {"datasetId": None, "datasetVersionId": None, "modelId": None}
    task = platform.create([key], entrypoint={"script": "has_tiny.py", "args": []}, **asked)
    platform.until_state(task, "succeeded", seconds=180)
    own = disk / "home" / ".fermi" / "python"
    said = f"tiny by {own}/bin/python, home {disk}/home, in {disk}/workspace\n"
    assert [platform.log(task, rank) for rank in (0, 1)] == [said, said]
    (lab.workspace / "has_tiny.py").write_text(HAS_TINY)
    outside = {"runIn": "beside"}
    task = platform.create([key], entrypoint={"script": "has_tiny.py", "args": []}, distributedConfig=outside, **asked)
    assert platform.until_final(task, seconds=180)["status"] == "failed"
    assert "there is no tiny" in platform.log(task)
    (disk / "home" / "absent").mkdir()
    absent = {"python": f"{disk}/home/absent/python"}
    task = platform.create([key], entrypoint={"script": "has_tiny.py", "args": []}, distributedConfig=absent, **asked)
    assert platform.until_final(task, seconds=180)["status"] == "failed"
    assert f"cannot run {absent['python']}: No such file or directory" in platform.log(task)


def test_an_environment_with_an_image_is_a_container_on_its_host(
    platform: Running, lab: Hosts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (given := settings(tmp_path)).items():
        monkeypatch.setenv(name, value)
    for image in imported("hosted", images.make(tmp_path / "root.tar")):
        lab.start("gn13", "0", **given)
        begun = scene(platform, "begin", "gn13", image)
        assert begun["engine"]["workers"] == ["gn13-0"]
        assert begun["said"] == "blue\n/home/fermi/work\n"
        labels = f"--filter=label=io.fermi.data={lab.folder / 'gn13' / 'hosted'}"
        ids = podman("ps", "--quiet", labels).split()
        assert len(ids) == 1

        agent = lab.agents.pop("gn13")
        os.killpg(agent.pid, signal.SIGKILL)  # the container goes on
        agent.wait()
        assert podman("ps", "--quiet", labels).split() == ids
        lab.start("gn13", "0", **given)
        assert scene(platform, "end", "gn13")["said"] == "kept\n"
        assert podman("ps", "--all", "--quiet", labels) == ""
        assert not (lab.folder / "gn13" / "hosted" / "environments" / "env-onhost").exists()


IN_CONTAINER = """
import os, sys, time
word = open("word.txt").read()
host = os.path.exists(sys.argv[1])
print(f"{word} from rank {os.environ['RANK']} of {os.environ['WORLD_SIZE']}, the host: {host}", flush=True)
print(f"{os.environ['MASTER_ADDR']} {os.environ['HOME']} {os.environ.get('WORD')}", flush=True)
while "wait" in sys.argv:
    time.sleep(0.1)
"""


def test_a_task_trains_inside_a_container_of_a_host(
    platform: Running, lab: Hosts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (given := settings(tmp_path)).items():
        monkeypatch.setenv(name, value)
    for image in imported("trains", images.make(tmp_path / "root.tar")):
        lab.start("gn17", "0,1", **given)
        try:
            trains_inside(platform, lab, image)
        finally:
            label = f"--filter=label=io.fermi.data={lab.folder / 'gn17' / 'hosted'}"
            for one in podman("ps", "--all", "--quiet", label).split():
                podman("rm", "--force", "--time=0", one)


def trains_inside(platform: Running, lab: Hosts, image: str) -> None:
    """To its end, to its stop while nobody watches for a moment, and to the end of its container."""
    more = {"gpuCount": 2, "emulated": True, "image": image}
    body = {"templateId": "template-custom", "projectId": "default", "name": "boxed", "clusterId": "workers", **more}

    def make_boxed() -> Any:
        answer = platform.api.post("/dev-environments/make", json={**body, "host": "gn17"})
        return answer.json()["data"]["id"] if answer.status_code == 201 else None

    key = until(make_boxed, what="its agent has reported its container engine")
    until_is(platform, key, "running")
    work = lab.folder / "gn17" / "hosted" / "environments" / key / "workspace"
    (work / "word.txt").write_text("hello")
    (work / "in_container.py").write_text(IN_CONTAINER)
    asked = {"datasetId": None, "datasetVersionId": None, "modelId": None, "env": {"WORD": "given"}}
    tasks: list[str] = []

    def begin(*args: str) -> str:
        words = {"script": "in_container.py", "args": [str(lab.folder), *args]}
        tasks.append(platform.create([key], entrypoint=words, **asked))
        return tasks[-1]

    def begin_and_wait() -> str:
        task = begin("wait")
        platform.until_state(task, "running", seconds=120)
        until(lambda: "hello" in platform.log(task, 1), what="its ranks have begun")
        return task

    first = begin()
    platform.until_state(first, "succeeded", seconds=180)
    logs = [platform.log(first, rank).splitlines() for rank in (0, 1)]
    assert [log[0] for log in logs] == [f"hello from rank {rank} of 2, the host: False" for rank in (0, 1)]
    assert logs[1][1] == "127.0.0.1 /home/fermi given"

    second = begin_and_wait()
    platform.kill("watch")
    platform.api.post(f"/training-tasks/{second}/stop").raise_for_status()
    platform.until_state(second, "stopped", seconds=120)
    assert not [words for words in _commands() if "in_container.py" in words]

    third = begin_and_wait()
    podman("kill", *podman("ps", "--quiet", f"--filter=label=io.fermi.environment={key}").split())
    outcome = until(lambda: platform.task(third)["attempts"][0]["outcome"], seconds=120, what="it has ended")
    assert outcome["code"] == "CONTAINER_RESTARTED", outcome
    platform.api.post(f"/training-tasks/{third}/stop").raise_for_status()
    platform.until_final(third, seconds=120)
    for one in tasks:
        platform.api.delete(f"/training-tasks/{one}").raise_for_status()
    until(lambda: not list((platform.data / "inside").iterdir()), seconds=60, what="nothing is kept of them")


def _commands() -> list[str]:
    """Of all processes of this machine."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            found.append(path.read_text(errors="replace"))
        except OSError:
            continue
    return found


def scene(platform: Running, step: str, host: str, *more: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "tests.e2e.environment_script", step, host, *more]
    done = subprocess.run(command, env=platform.env, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    return json.loads(done.stdout.splitlines()[-1])
