"""Bare metal: two hosts with real agents train real DDP, while agents, ranks, hosts and the platform are killed."""

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.agents import Host
from tests.running import Running
from tests.waiting import until

pytestmark = pytest.mark.faults

TINY = {"layers": 1, "heads": 2, "hiddenSize": 16, "sequenceLength": 16, "learningRate": 0.01, "warmupSteps": 2,
        "evalEvery": 1000, "evalBatches": 1, "logEvery": 5}  # fmt: skip
TRAINING = {**TINY, "totalSteps": 60, "stepDelay": 0.03, "checkpointEvery": 10}
SCRIPT = """
import json, os
import torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
dist.init_process_group("gloo")
rank = dist.get_rank()
names = ("RANK", "LOCAL_RANK", "NODE_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_PORT")
print("env", *(os.environ[name] for name in names), flush=True)
torch.manual_seed(rank)
model = DistributedDataParallel(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(1, 4):
    loss = model(torch.ones(2, 4) * (rank + 1)).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(json.dumps({"step": step, "loss": loss.item()}), flush=True)
print("weights", *model.module.weight.flatten().tolist(), flush=True)
dist.destroy_process_group()
"""


class Site:
    def __init__(self, platform: Running, folder: Path) -> None:
        self.platform = platform
        answer = platform.api.post("/workers/join-tokens", json={"name": "test"})
        assert answer.status_code == 201, answer.text
        token = answer.json()["data"]["token"]
        self.gn6, self.gn7 = (Host(platform, folder / node, node, n, token) for node, n in (("gn6", 2), ("gn7", 1)))

    @property
    def hosts(self) -> list[Host]:
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
    running = Running(data, FERMI_WORKER_HEARTBEAT="0.5", FERMI_WORKER_LOST="4").start()
    yield running
    running.close()


@pytest.fixture(scope="module")
def site(platform: Running, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    site = Site(platform, tmp_path_factory.mktemp("hosts"))
    for host in site.hosts:
        host.start()
    yield site
    for host in site.hosts:
        host.close()


@pytest.fixture(autouse=True)
def nothing_is_left_running_on_hosts(site: Site) -> Iterator[None]:
    """Every test begins with both hosts there and leaves no rank behind."""
    for host in site.hosts:
        until(host.is_online, what=f"{host.node} is back")
    yield
    assert [host.strays() for host in site.hosts] == [[], []]


def test_a_groups_script_trains_over_two_hosts(platform, site):
    for host in site.hosts:
        (host.workspace / "train.py").write_text(SCRIPT)
    members = [*site.gn6.ids, *site.gn7.ids]
    body = {"name": "lab", "masterAddress": "gn7", "backend": "gloo", "script": "train.py", "workerIds": members}
    answer = platform.api.post("/worker-groups", json=body)
    assert answer.status_code == 201, answer.text
    group = answer.json()["data"]["id"]
    answer = platform.api.post(f"/worker-groups/{group}/start")
    assert answer.status_code == 200, answer.text
    task_id = answer.json()["data"]["task"]["id"]
    task = platform.until_state(task_id, "succeeded")
    port = str(task["attempts"][0]["masterPort"])
    logs = [platform.log(task_id, rank) for rank in range(3)]
    places = [next(line for line in log.splitlines() if line.startswith("env")).split()[1:] for log in logs]
    assert places == [
        ["0", "0", "0", "3", "1", port], ["1", "0", "1", "3", "2", port], ["2", "1", "1", "3", "2", port],
    ]  # fmt: skip
    weights = {log.splitlines()[-1] for log in logs}
    assert len(weights) == 1, "the ranks did not train one model"
    assert sorted(step for _, step in site.steps(task_id)) == [1, 1, 1, 2, 2, 2, 3, 3, 3]
    moved = platform.api.post("/worker-groups/move", json={"workerIds": members, "groupId": None})
    assert moved.status_code == 200, moved.text


def test_a_killed_agent_is_not_noticed_by_training_and_the_next_one_goes_on(platform, site):
    task_id = site.train()
    pid = platform.rank_pid(task_id, 0)
    site.gn6.kill_agent()
    grown = site.gn6.log(task_id, 1, 0).stat().st_size
    until(lambda: site.gn6.log(task_id, 1, 0).stat().st_size > grown, what="training goes on")
    site.gn6.start()
    assert platform.task(task_id)["ranks"][0]["pid"] == pid
    site.assert_trained_once(task_id, attempts=1)
    site.assert_logs_are_those_of_the_hosts(task_id, 1)


def test_a_platform_that_is_away_until_training_has_ended_hears_of_it_all(platform, site):
    task_id = site.train()
    platform.kill_everything()
    until(lambda: all(one["state"] == "exited" for host in site.hosts for one in host.statuses()), what="training ends")
    platform.start()
    site.assert_trained_once(task_id, attempts=1)
    site.assert_logs_are_those_of_the_hosts(task_id, 1)


def test_a_killed_web_server_is_not_noticed_by_training(platform, site):
    task_id = site.train()
    platform.kill("web")
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


def test_a_host_that_is_gone_is_waited_for_and_training_resumes_when_it_is_back(platform, site):
    task_id = site.train()
    site.gn7.power_off()
    until(lambda: (platform.task(task_id)["attempts"][0]["outcome"] or {}).get("code") == "WORKER_LOST", what="lost")
    waiting = platform.until_state(task_id, "queued")
    assert waiting["attempt"] == 1
    until(lambda: "gn7" in (platform.task(task_id)["reason"] or {}).get("message", ""), what="the reason names it")
    site.gn7.start()
    site.assert_trained_once(task_id, attempts=2)


def test_a_host_that_comes_back_ends_its_old_rank_before_it_begins_the_new_one(platform, site):
    task_id = site.train()
    old = next(one for one in site.gn7.statuses() if one["name"] == f"{task_id}-1")
    site.gn7.freeze()
    until(lambda: (platform.task(task_id)["attempts"][0]["outcome"] or {}).get("code") == "WORKER_LOST", what="lost")
    platform.until_state(task_id, "queued")
    site.gn7.thaw()
    site.assert_trained_once(task_id, attempts=2)
    new = json.loads((site.gn7.folder / "state/workers/gn7-0/runs" / f"{task_id}-2" / "rank.status.json").read_text())
    assert new["ranks"][0]["start_time"] > old["ranks"][0]["start_time"]
    assert [line for line in platform.log(task_id, 2, attempt=2).splitlines() if "address already in use" in line] == []
