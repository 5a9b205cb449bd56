"""Tasks share the machines: real training is paused, gives way, and goes on from its checkpoint."""

import pytest

from tests.platform_process import WARM, Running
from tests.polling import until

SETTINGS = WARM
ALL = ["env-001", "env-003", "env-005"]  # 2 + 4 + 8 GPUs
TRAINING = {"totalSteps": 60, "stepDelay": 0.05, "checkpointEvery": 10, "logEvery": 5, "evalEvery": 0}


def codes(platform: Running, task_id: str) -> list[str]:
    return [event["code"] for event in platform.items(task_id, "events", pageSize=200)]


@pytest.mark.database
def test_a_paused_task_of_fourteen_ranks_releases_its_environments_and_resumes(platform: Running) -> None:
    task_id = platform.create(ALL, hyperparameters=TRAINING, maxRestarts=0)
    until(lambda: platform.items(task_id, "checkpoints"), seconds=180, what="a checkpoint")
    assert platform.api.post(f"/training-tasks/{task_id}/pause").status_code == 200
    paused = until(lambda: (task := platform.task(task_id))["status"] == "queued" and task, what="it rests")
    assert (paused["paused"], paused["reason"]["code"]) == (True, "PAUSED")
    assert "resume" in paused["allowedActions"]
    assert not any(platform.get(f"/dev-environments/{key}")["heldBy"] for key in ALL)
    saved = platform.items(task_id, "checkpoints")[0]["step"]

    meanwhile = platform.create(["env-001"], hyperparameters={**TRAINING, "totalSteps": 2})
    platform.until_state(meanwhile, "succeeded")

    assert platform.api.post(f"/training-tasks/{task_id}/resume").status_code == 200
    done = platform.until_state(task_id, "succeeded", seconds=180)
    first, second = done["attempts"]
    assert first["outcome"]["code"] == "PAUSED"
    resumed = next(e for e in platform.items(task_id, "events", pageSize=200) if e["code"] == "SCRIPT_RESUMED")
    assert resumed["params"]["step"] == saved
    assert second["resumeFrom"]
    assert platform.strays() == []


@pytest.mark.database
def test_fourteen_ranks_are_preempted_and_lose_less_than_a_checkpoint_interval(platform: Running) -> None:
    low = platform.create(
        ALL, hyperparameters=TRAINING, maxRestarts=0, priority="low", preemptible=True, minRunSeconds=0
    )
    until(lambda: platform.items(low, "checkpoints"), seconds=180, what="a checkpoint")
    asks = {"enabled": True, "select": {"totalGpus": 6, "exclude": ["env-002", "env-004"]}, "framework": "ddp"}
    request = platform.request(["env-001"], hyperparameters={**TRAINING, "totalSteps": 2}, priority="high")
    request.pop("environmentIds")
    answer = platform.api.post("/training-tasks", json={**request, "distributedConfig": asks})
    assert answer.status_code == 201, answer.text
    high = answer.json()["data"]["taskId"]
    ended = platform.until_state(high, "succeeded", seconds=180)
    assert sum(node["processes"] for node in ended["nodes"]) == 6
    assert {node["environmentId"] for node in ended["nodes"]} <= set(ALL)
    done = platform.until_state(low, "succeeded", seconds=240)
    assert [attempt["outcome"]["code"] for attempt in done["attempts"]] == ["GAVE_WAY", "COMPLETED"]
    assert "PREEMPTION_REQUESTED" in codes(platform, low)
    points = [point for point in platform.items(low, "metrics", limit=1000) if "loss" in point["values"]]
    reached = max(point["step"] for point in points if point["attempt"] == 1)
    resumed = next(e for e in platform.items(low, "events", pageSize=200) if e["code"] == "SCRIPT_RESUMED")
    assert reached - resumed["params"]["step"] <= TRAINING["checkpointEvery"]
    usage = platform.get(f"/training-tasks/{low}/usage")
    parts = ("starting", "training", "saving", "lost", "redone", "idle", "hung")
    assert sum(usage[part] for part in parts) == pytest.approx(usage["heldSeconds"], abs=0.1)
    assert usage["goodput"] > 0
    assert usage["gpuHours"] == pytest.approx(14 * usage["heldSeconds"] / 3600, rel=0.01)
    assert platform.strays() == []
