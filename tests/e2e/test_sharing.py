"""Tasks share the machines: real training is paused, gives way, and goes on from its checkpoint."""

import pytest

from tests.running import WARM, Running
from tests.waiting import until

SETTINGS = WARM
ALL = ["env-001", "env-002", "env-003"]
TRAINING = {"totalSteps": 60, "stepDelay": 0.05, "checkpointEvery": 10, "logEvery": 5, "evalEvery": 0}


def codes(platform: Running, task_id: str) -> list[str]:
    return [event["code"] for event in platform.items(task_id, "events", pageSize=200)]


@pytest.mark.storage
def test_a_paused_task_of_fourteen_ranks_gives_its_environments_back_and_goes_on(platform: Running) -> None:
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
