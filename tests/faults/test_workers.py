"""Bare metal: two hosts with real agents train real DDP, while agents, ranks, hosts and the web server are killed. What
happens when all of the platform is away, or a host loses power, is in `tests/e2e/test_workers.py`."""

import os
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.agents import Host
from tests.platform_process import Running
from tests.polling import until

pytestmark = pytest.mark.faults

TINY = {"layers": 1, "heads": 2, "hiddenSize": 16, "sequenceLength": 16, "learningRate": 0.01, "warmupSteps": 2,
        "evalEvery": 1000, "evalBatches": 1, "logEvery": 5}  # fmt: skip
TRAINING = {**TINY, "totalSteps": 60, "stepDelay": 0.03, "checkpointEvery": 10}
OLD_AND_NEW = """
import os, sys, time
rank, attempt, folder = os.environ["RANK"], os.environ["FERMI_ATTEMPT"], sys.argv[1]
if attempt == "1":
    with open(f"{folder}/{rank}", "w") as file:
        file.write(str(os.getpid()))
    time.sleep(600)
with open(f"{folder}/{rank}") as file:
    print("old rank alive:", os.path.exists(f"/proc/{file.read()}"), flush=True)
"""


class Site:
    def __init__(self, platform: Running, folder: Path) -> None:
        self.platform = platform
        answer = platform.api.post("/workers/join-tokens", json={"name": "test"})
        assert answer.status_code == 201, answer.text
        token = answer.json()["data"]["token"]
        self.gn6, self.gn7, self.spare = (
            Host(platform, folder / node, node, n, token) for node, n in (("gn6", 2), ("gn7", 1), ("gn8", 1))
        )

    @property
    def hosts(self) -> list[Host]:
        """Without the spare one, which only its test starts."""
        return [self.gn6, self.gn7]

    def environment(self, node: str) -> dict[str, Any]:
        found = self.platform.get("/dev-environments", search=node)["items"]
        return next(item for item in found if item["name"] == node)

    def train(self, **changes: Any) -> str:
        """A task as the create page makes it, over both hosts, that has saved a checkpoint."""
        ids = [self.environment(host.node)["id"] for host in self.hosts]
        task_id = self.platform.create(ids, hyperparameters={**TRAINING, **changes}, maxRestarts=2)
        until(lambda: self.platform.items(task_id, "checkpoints"), seconds=120, what="a checkpoint")
        return task_id

    def steps(self, task_id: str) -> list[tuple[int, int]]:
        points = self.platform.items(task_id, "metrics", limit=1000)
        return [(point["attempt"], point["step"]) for point in points if "loss" in point["values"]]

    def assert_trained_once(self, task_id: str, attempts: int) -> dict[str, Any]:
        task = self.platform.until_state(task_id, "succeeded")
        assert task["attempt"] == attempts, [attempt["outcome"] for attempt in task["attempts"]]
        found = self.steps(task_id)
        assert len(found) == len(set(found)), "a point was stored twice"
        assert found[-1] == (attempts, TRAINING["totalSteps"])
        return task

    def assert_logs_are_those_of_the_hosts(self, task_id: str, attempt: int) -> None:
        for rank, host in ((0, self.gn6), (1, self.gn6), (2, self.gn7)):
            here = self.platform.data / "logs" / task_id / str(attempt) / f"{rank}.log"
            assert here.read_bytes() == host.log(task_id, attempt, rank).read_bytes()


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    data = tmp_path_factory.mktemp("platform") / "data"
    running = Running(data, FERMI_WORKER_HEARTBEAT="1", FERMI_WORKER_LOST="10").start()
    yield running
    running.close()


@pytest.fixture(scope="module")
def site(platform: Running, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    site = Site(platform, tmp_path_factory.mktemp("hosts"))
    for host in site.hosts:
        host.start()
    yield site
    for host in (*site.hosts, site.spare):
        host.close()


@pytest.fixture(autouse=True)
def nothing_is_left_running_on_hosts(site: Site) -> Iterator[None]:
    """Every test begins with both hosts there and leaves no rank behind."""
    for host in site.hosts:
        until(host.is_online, what=f"{host.node} is back")
    yield
    assert [host.strays() for host in site.hosts] == [[], []]


def test_training_survives_a_killed_agent_and_web_server(platform, site):
    task_id = site.train()
    pid = platform.rank_pid(task_id, 0)
    site.gn6.kill_agent()
    grown = site.gn6.log(task_id, 1, 0).stat().st_size
    until(lambda: site.gn6.log(task_id, 1, 0).stat().st_size > grown, what="training goes on")
    platform.kill("web")
    site.gn6.start()
    assert platform.task(task_id)["ranks"][0]["pid"] == pid
    site.assert_trained_once(task_id, attempts=1)
    site.assert_logs_are_those_of_the_hosts(task_id, 1)


def test_a_killed_rank_is_named_and_training_resumes_from_its_checkpoint(platform, site):
    task_id = site.train()
    os.kill(platform.rank_pid(task_id, 2), signal.SIGKILL)
    task = site.assert_trained_once(task_id, attempts=2)
    assert task["attempts"][0]["outcome"]["code"] == "RANK_KILLED"
    assert "gn7" in task["attempts"][0]["outcome"]["message"]
    first = next(step for attempt, step in site.steps(task_id) if attempt == 2)
    assert first > 10


def test_a_returned_host_ends_its_old_rank_before_starting_a_new_one(platform, site):
    """It was not heard for so long that its attempt was given up, while its rank went on."""
    for host in site.hosts:
        (host.workspace / "old_and_new.py").write_text(OLD_AND_NEW)
    ids = [site.environment(host.node)["id"] for host in site.hosts]
    folder = Path(tempfile.mkdtemp(dir=site.gn6.shared))
    script = {"script": "old_and_new.py", "args": [str(folder)]}
    task_id = platform.create(ids, entrypoint=script, env={"PYTHONHASHSEED": "0"}, maxRestarts=1)
    until(lambda: {path.name for path in folder.iterdir()} == {"0", "1", "2"}, what="all ranks run")
    site.gn7.freeze()
    waiting = platform.until_state(task_id, "queued")
    assert waiting["attempts"][0]["outcome"]["code"] == "WORKER_LOST"
    assert site.environment("gn7")["status"] == "unhealthy"
    assert site.gn7.strays() == [f"{task_id}-1"]
    site.gn7.thaw()
    assert platform.until_state(task_id, "succeeded")["attempt"] == 2
    assert platform.log(task_id, 2, attempt=2).splitlines()[-1] == "old rank alive: False"


def test_a_spare_host_replaces_a_lost_one(platform, site):
    """The lost one's rank goes on unheard, and is ended when its host is heard again."""
    site.spare.start()
    for host in (*site.hosts, site.spare):
        (host.workspace / "old_and_new.py").write_text(OLD_AND_NEW)
    ids = [site.environment(host.node)["id"] for host in site.hosts]
    spares = [site.environment("gn8")["id"]]
    folder = Path(tempfile.mkdtemp(dir=site.gn6.shared))
    script = {"script": "old_and_new.py", "args": [str(folder)]}
    task_id = platform.create(ids, spareEnvironmentIds=spares, entrypoint=script, maxRestarts=5)
    until(lambda: {path.name for path in folder.iterdir()} == {"0", "1", "2"}, what="all ranks run")
    site.gn7.freeze()
    task = platform.until_state(task_id, "succeeded")
    assert task["attempts"][0]["outcome"]["code"] == "WORKER_LOST"
    assert [node["name"] for node in task["nodes"]] == ["gn6", "gn8"]
    assert platform.log(task_id, 2, attempt=task["attempt"]) == "old rank alive: True\n"
    site.gn7.thaw()
    until(lambda: site.gn7.strays() == [], what="the old rank is ended")
