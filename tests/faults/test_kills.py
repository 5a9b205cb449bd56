"""kill -9 of each part while real training runs: the task ends right, once, and nothing is left running."""

import os
import signal
from pathlib import Path

import pytest

from tests.platform_process import WARM, Running
from tests.polling import until

pytestmark = pytest.mark.faults
SETTINGS = WARM
ON_BOTH = pytest.mark.database

TRAINING = {
    "totalSteps": 60,
    "stepDelay": 0.03,
    "checkpointEvery": 10,
    "logEvery": 5,
    "evalEvery": 30,
    "evalBatches": 1,
}


def begin(platform: Running, **changes) -> str:
    """A two-environment task that has saved its first checkpoint."""
    task_id = platform.create(["env-001", "env-002"], hyperparameters=TRAINING, **changes)
    until(lambda: platform.items(task_id, "checkpoints"), seconds=120, what="a checkpoint")
    return task_id


def steps(platform: Running, task_id: str) -> list[tuple[int, int]]:
    """(attempt, step) of every training point, in the order they were stored."""
    points = platform.items(task_id, "metrics", limit=1000)
    return [(point["attempt"], point["step"]) for point in points if "loss" in point["values"]]


def assert_trained_to_the_end_once(platform: Running, task_id: str, attempts: int) -> None:
    task = platform.until_state(task_id, "succeeded")
    assert task["attempt"] == attempts
    found = steps(platform, task_id)
    assert len(found) == len(set(found)), "a point was stored twice"
    assert found[-1] == (attempts, TRAINING["totalSteps"])
    ends = [event for event in platform.items(task_id, "events", pageSize=200) if event["code"] == "STATE_SUCCEEDED"]
    assert len(ends) == 1


@ON_BOTH
def test_a_killed_rank_is_named_and_training_resumes_from_its_checkpoint(platform):
    task_id = begin(platform)
    os.kill(platform.rank_pid(task_id, 3), signal.SIGKILL)
    assert_trained_to_the_end_once(platform, task_id, attempts=2)
    first, second = platform.task(task_id)["attempts"]
    assert first["outcome"]["code"] == "RANK_KILLED"
    assert "3" in first["outcome"]["message"]
    assert first["masterPort"] != second["masterPort"]
    resumed = [event for event in platform.items(task_id, "events", pageSize=200) if event["code"] == "SCRIPT_RESUMED"]
    assert len(resumed) == 1
    assert resumed[0]["params"]["step"] >= 10
    restarted_at = next(step for attempt, step in steps(platform, task_id) if attempt == 2)
    assert restarted_at > resumed[0]["params"]["step"]


def test_a_killed_runner_ends_its_ranks_and_training_resumes(platform):
    task_id = begin(platform)
    pid = platform.rank_pid(task_id, 0)
    runner = int(Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[1])
    os.kill(runner, signal.SIGKILL)
    assert_trained_to_the_end_once(platform, task_id, attempts=2)


@pytest.mark.parametrize("part", ["worker", "web", "beat", "watch", "broker"])
def test_a_killed_platform_process_is_restarted_without_interrupting_training(platform, part):
    task_id = begin(platform)
    before = platform.processes()[part]
    platform.kill(part)
    assert_trained_to_the_end_once(platform, task_id, attempts=1)
    until(lambda: (new := platform.processes().get(part)) and new["pid"] != before["pid"], what=f"{part} is back")


def test_a_rank_that_always_fails_fails_the_task_after_its_restarts(platform):
    (platform.data / "workspace").mkdir(exist_ok=True)
    (platform.data / "workspace" / "fails.py").write_text("raise RuntimeError('no luck at all')")
    script = {"script": "fails.py"}
    task_id = platform.create(["env-001", "env-002"], entrypoint=script, maxRestarts=1, onCrashLoop="restart")
    task = platform.until_state(task_id, "failed")
    assert [attempt["outcome"]["code"] for attempt in task["attempts"]] == ["RANK_FAILED", "RANK_FAILED"]
    assert task["reason"]["code"] == "RANK_FAILED"
    assert "RuntimeError: no luck at all — fails.py:1" in task["reason"]["message"]
    assert "no luck at all" in platform.log(task_id, 0, attempt=2)


def test_stopping_saves_and_leaves_no_process(platform):
    task_id = begin(platform)
    assert platform.api.post(f"/training-tasks/{task_id}/stop").status_code == 200
    assert platform.api.post(f"/training-tasks/{task_id}/stop").status_code == 200
    task = platform.until_state(task_id, "stopped")
    assert task["reason"]["code"] == "STOPPED_BY_USER"
    assert task["allowedActions"] == ["retry", "clone", "delete"]


def test_a_task_waits_for_held_environments(platform):
    first = begin(platform)
    second = platform.create(["env-002", "env-003"], hyperparameters={**TRAINING, "totalSteps": 5})
    waiting = platform.until_state(second, "queued")
    until(lambda: (platform.task(second)["reason"] or {}).get("code") == "WAITING_FOR_ENVIRONMENTS", what="the reason")
    assert platform.task(second)["reason"]["message"].endswith("(test).")  # held by the task of this name
    assert waiting["attempt"] == 0
    platform.until_state(first, "succeeded")
    platform.until_state(second, "succeeded")


@ON_BOTH
def test_a_killed_platform_finds_its_running_training_again(platform):
    task_id = begin(platform)
    platform.kill_everything()
    assert platform.strays() == [f"{task_id}-1"]
    platform.start()
    assert_trained_to_the_end_once(platform, task_id, attempts=1)


def test_training_that_ended_while_the_platform_was_down_is_recorded_completely(platform):
    task_id = begin(platform)
    platform.interrupt()
    until(lambda: not platform.strays(), what="training ended by itself")
    platform.start()
    assert_trained_to_the_end_once(platform, task_id, attempts=1)


def test_a_rank_killed_while_the_platform_was_down_is_restarted(platform):
    task_id = begin(platform)
    pid = platform.rank_pid(task_id, 1)
    platform.kill_everything()
    os.kill(pid, signal.SIGKILL)
    platform.start()
    assert_trained_to_the_end_once(platform, task_id, attempts=2)
