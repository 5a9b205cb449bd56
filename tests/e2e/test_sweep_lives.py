"""A sweep of twelve trials over real training on 14 emulated GPUs in three zones, while a rank is killed, a trial is
preempted, and the platform dies: no trial is lost, none runs twice, and the best one goes on from its checkpoint."""

import os
import signal
from collections.abc import Callable
from typing import Any

import pytest

from tests.platform_process import WARM, Running
from tests.polling import until

pytestmark = [pytest.mark.e2e, pytest.mark.database]
SETTINGS = WARM
ALL = ["env-001", "env-003", "env-005"]  # 2 + 4 + 8 GPUs
EVERY = 5
TRAINING = {"totalSteps": 30, "stepDelay": 0.1, "checkpointEvery": EVERY, "logEvery": 1, "evalEvery": 0}
BODY: dict[str, Any] = {
    "name": "twelve",
    "objective": {"metric": "loss"},
    "method": "random",
    "parameters": {"learningRate": {"min": 1e-5, "max": 1e-2, "scale": "log"}},
    "pruning": {"method": "asha", "minSteps": 5},
    "budget": {"trials": 12},
    "parallel": 3,
    "request": {
        "taskName": "trial",
        "datasetId": "dataset-001",
        "datasetVersionId": "version-001",
        "modelId": "model-001",
        "hyperparameters": TRAINING,
        "minRunSeconds": 0,
        "maxRestarts": 5,
        "distributedConfig": {
            "enabled": True,
            "framework": "ddp",
            "select": {"nodes": 1, "exclude": ["env-002", "env-004", "env-local"]},
        },
    },
}


def list_trials(platform: Running, sweep: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = platform.get(f"/sweeps/{sweep}/trials", pageSize=100)["items"]
    return found


def list_outcomes(task: dict[str, Any]) -> list[str]:
    return [attempt["outcome"]["code"] for attempt in task["attempts"] if attempt["outcome"]]


def disturb(platform: Running, sweep: str, act: Callable[[dict[str, Any]], None], outcome: str) -> None:
    """Do something to a trial that trains, so that its attempt ends with `outcome`. One that has come to its rung
    meanwhile is paused instead: then the next one has it."""

    def find_training() -> dict[str, Any] | None:
        for trial in list_trials(platform, sweep):
            if trial["status"] == "active" and trial["taskStatus"] == "running" and trial["step"]:
                return platform.task(trial["taskId"])
        return None

    def is_disturbed() -> bool:
        task = until(find_training, seconds=120, what="a trial trains")
        before = len(list_outcomes(task))
        act(task)
        ended = until(
            lambda: len(found := list_outcomes(platform.task(task["taskId"]))) > before and found,
            seconds=120,
            what=f"the attempt of {task['taskId']} ends",
        )
        return ended[before] == outcome

    until(is_disturbed, seconds=300, what=f"a trial's attempt ends with {outcome}")


@pytest.mark.timeout(900)
def test_a_sweep_of_twelve_trials_survives_a_killed_rank_a_preemption_and_the_platforms_death(
    platform: Running,
) -> None:
    answer = platform.api.post("/sweeps", json=BODY)
    assert answer.status_code == 201, answer.text
    sweep: str = answer.json()["data"]["id"]

    def kill_rank(task: dict[str, Any]) -> None:
        if pid := task["ranks"][0]["pid"]:
            os.kill(pid, signal.SIGKILL)

    def preempt(task: dict[str, Any]) -> None:
        where = [node["environmentId"] for node in task["nodes"]]
        urgent = platform.create(where, priority="high", hyperparameters={**TRAINING, "totalSteps": 2})
        platform.until_state(urgent, "succeeded", seconds=180)

    disturb(platform, sweep, kill_rank, "RANK_KILLED")
    disturb(platform, sweep, preempt, "GAVE_WAY")
    platform.kill_everything()
    platform.start()
    found = until(
        lambda: (now := platform.get(f"/sweeps/{sweep}"))["status"] == "ended" and now,
        seconds=600,
        what="the sweep ends",
    )
    assert found["reason"]["code"] == "SWEEP_TRIALS_DONE"

    trials = list_trials(platform, sweep)
    assert [trial["number"] for trial in trials] == list(range(12))
    assert len({trial["taskId"] for trial in trials}) == 12
    named = [task["taskName"] for task in platform.get("/training-tasks", pageSize=100)["items"]]
    assert sorted(name for name in named if name.startswith("trial #")) == sorted(f"trial #{n}" for n in range(12))
    states = [trial["status"] for trial in trials]
    assert set(states) == {"complete", "pruned"}
    assert states.count("pruned") >= 2
    assert {trial["why"]["code"] for trial in trials if trial["status"] == "pruned"} == {"TRIAL_NOT_PROMOTED"}

    outcomes = []
    for trial in trials:
        task = platform.task(trial["taskId"])
        assert (task["priority"] < 0, task["preemptible"]) == (True, True)
        outcomes += list_outcomes(task)
        points = platform.items(trial["taskId"], "metrics", limit=1000)
        steps = [point["step"] for point in points if "loss" in point["values"]]
        lost = sum(code == "RANK_KILLED" for code in list_outcomes(task))  # the others save as they end
        assert len(steps) - len(set(steps)) <= lost * EVERY, trial
        assert set(steps) == set(range(1, max(steps) + 1)), trial
    assert {"RANK_KILLED", "GAVE_WAY", "PAUSED", "COMPLETED"} <= set(outcomes)

    best = found["bestTrial"]
    assert best["value"] == min(trial["value"] for trial in trials if trial["status"] == "complete")
    body = {"taskName": "longer", "hyperparameters": {"totalSteps": 33}}
    cloned = platform.api.post(f"/sweeps/{sweep}/clone-best", json=body).json()["data"]["taskId"]
    platform.until_state(cloned, "succeeded", seconds=180)
    resumed = next(
        event for event in platform.items(cloned, "events", pageSize=200) if event["code"] == "SCRIPT_RESUMED"
    )
    assert resumed["params"]["step"] == TRAINING["totalSteps"]
    assert platform.strays() == []
