"""What `--follow` shows of a task, as its stream tells."""

from typing import Any

from fermi.cli.follow import TaskProgress

TASK: Any = {"status": "queued", "step": None, "totalSteps": None, "loss": None, "attempt": 1}


def test_steps_are_shown_with_the_status_for_scripts_that_print_none() -> None:
    progress = TaskProgress.from_task(TASK)
    assert str(progress) == "queued"
    progress.hear("status", {**TASK, "status": "running", "step": 37})
    assert str(progress) == "running  37/?"
    progress.hear("status", {**TASK, "status": "running", "step": 50, "totalSteps": 300, "loss": 2.5})
    progress.hear("metric", {"items": [{"step": 40, "values": {"loss": 2.6, "tokens_per_s": 1200.0}}]})
    assert str(progress) == "running  50/300  loss 2.5000  1,200 tokens/s"
    progress.hear("metric", {"items": [{"step": 50, "values": {"val_loss": 2.7}}]})
    progress.hear("status", {**TASK, "status": "succeeded", "step": 300, "totalSteps": 300, "loss": 2.1, "attempt": 2})
    assert str(progress) == "succeeded  300/300  loss 2.1000  1,200 tokens/s  1 restart"
