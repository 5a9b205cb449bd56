"""A training that loses a node and gets it back trains as one that never lost it: every step has the same loss."""

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.loss_curves import assert_alike
from tests.platform_process import WARM, Running
from tests.polling import until

pytestmark = pytest.mark.e2e

HYPERPARAMETERS = {"totalSteps": 30, "checkpointEvery": 5, "evalEvery": 15, "evalBatches": 2, "logEvery": 1,
                   "batchSize": 4, "learningRate": 0.002, "warmupSteps": 5, "learningRateScaling": "sqrt"}  # fmt: skip


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    running = Running(tmp_path_factory.mktemp("platform") / "data", **WARM).start()
    yield running
    running.close()


def environments(platform: Running, prefix: str, count: int) -> list[str]:
    """Of this machine, with one emulated GPU each."""
    known = platform.get("/dev-environments/env-001")
    made = []
    for number in range(count):
        body = {
            "name": f"{prefix}{number}", "clusterId": known["clusterId"], "projectId": known["projectId"],
            "zone": known["zone"]["id"], "gpuType": "A100", "gpuCount": 1, "emulated": True,
        }  # fmt: skip
        answer = platform.api.post("/dev-environments", json=body)
        assert answer.status_code == 201, answer.text
        made.append(answer.json()["data"]["id"])
    return made


def train(platform: Running, nodes: list[str], framework: str, **changes: Any) -> str:
    config = {"nodeIds": nodes, "masterNode": nodes[0], "framework": framework, **changes.pop("config", {})}
    hyperparameters = {**HYPERPARAMETERS, **changes.pop("hyperparameters", {})}
    return platform.create(nodes, distributedConfig=config, hyperparameters=hyperparameters, **changes)


def curve(platform: Running, task_id: str) -> dict[int, dict[str, float]]:
    """What each step said last; what it said before must have been the same."""
    found: dict[int, dict[str, float]] = {}
    for point in platform.items(task_id, "metrics", limit=5000):
        values = {name: point["values"][name] for name in ("loss", "val_loss", "lr") if name in point["values"]}
        if found.get(point["step"], {}).keys() & values.keys():
            again = {name: found[point["step"]][name] for name in values}
            assert values == pytest.approx(again, rel=1e-4), f"step {point['step']} was computed twice"
        found[point["step"]] = {**found.get(point["step"], {}), **values}
    return found


def checkpointed(platform: Running, task_id: str, attempt: int) -> bool:
    return any(saved["attempt"] == attempt for saved in platform.items(task_id, "checkpoints"))


@pytest.fixture(scope="module")
def unbroken(platform: Running) -> str:
    return train(platform, environments(platform, "unbroken", 4), "ddp")


@pytest.mark.parametrize("framework", ["ddp", "fsdp"])
def test_resizing_from_four_nodes_to_three_and_back_keeps_the_losses(
    framework: str, platform: Running, unbroken: str
) -> None:
    kept = environments(platform, framework, 4)
    elastic = {"elastic": {"minNodes": 2, "maxNodes": 4}}
    broken = train(platform, kept, framework, config=elastic, hyperparameters={"stepDelay": 0.05}, maxRestarts=1)

    until(lambda: checkpointed(platform, broken, 1), seconds=120, what="a checkpoint on four nodes")
    cordon = {"cordoned": True}
    platform.api.patch(f"/dev-environments/{kept[0]}", json=cordon).raise_for_status()  # the master
    os.kill(platform.rank_pid(broken, 0), signal.SIGKILL)
    until(lambda: checkpointed(platform, broken, 2), seconds=120, what="a checkpoint on three nodes")
    task = platform.task(broken)
    assert (task["worldSize"], task["masterNode"], task["elastic"]["nodes"]) == (3, kept[1], 3)
    assert [one["environmentId"] for one in task["elastic"]["away"]] == [kept[0]]
    refused = platform.api.post(f"/training-tasks/{broken}/grow")
    assert (refused.status_code, refused.json()["errors"][0]["error"]) == (409, "NOTHING_TO_GROW")

    platform.api.patch(f"/dev-environments/{kept[0]}", json={"cordoned": False}).raise_for_status()
    platform.api.post(f"/training-tasks/{broken}/grow").raise_for_status()
    task = platform.until_state(broken, "succeeded", seconds=180)
    assert [attempt["outcome"]["code"] for attempt in task["attempts"]] == ["RANK_KILLED", "RESIZING", "COMPLETED"]
    assert (task["worldSize"], task["masterNode"]) == (4, kept[0])
    codes = [event["code"] for event in platform.items(broken, "events", pageSize=200)]
    for code in ("ENVIRONMENT_LEFT", "MASTER_ELECTED", "GROW_REQUESTED", "ENVIRONMENT_JOINED"):
        assert codes.count(code) == (2 if code == "MASTER_ELECTED" else 1), code
    platform.until_state(unbroken, "succeeded", seconds=120)
    found, wanted = curve(platform, broken), curve(platform, unbroken)
    if folder := os.environ.get("FERMI_TEST_CURVES"):
        sizes = {one["step"]: one["attempt"] for one in platform.items(broken, "metrics", limit=5000)}
        written = {"broken": found, "unbroken": wanted, "attempts": sizes}
        Path(folder, f"{framework}.json").write_text(json.dumps(written), encoding="utf-8")
    assert_alike(found, wanted)
    assert platform.strays() == []
