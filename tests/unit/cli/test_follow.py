"""What `--follow` shows of a task, as its stream tells."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from fermi.cli.follow import TaskProgress
from fermi.cli.times import format_time_left

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


def test_the_time_left_is_shown_as_an_estimate_until_it_has_passed() -> None:
    ends = (datetime.now(UTC) + timedelta(minutes=7, seconds=12)).isoformat()
    progress = TaskProgress.from_task(
        {**TASK, "status": "running", "step": 50, "totalSteps": 300, "estimatedEndAt": ends}
    )
    assert str(progress) == "running  50/300  about 7m left"
    progress.hear("status", {**TASK, "status": "running", "step": 60, "totalSteps": 300, "estimatedEndAt": None})
    assert str(progress) == "running  60/300"


@pytest.mark.parametrize(
    ("seconds", "text"), [(-1, None), (0, None), (42.6, "42s"), (432, "7m"), (7203, "2h"), (93_700, "1d 2h")]
)
def test_the_time_left_is_rounded_to_minutes(seconds: float, text: str | None) -> None:
    moment = datetime(2026, 11, 28, 12, tzinfo=UTC)
    assert format_time_left((moment + timedelta(seconds=seconds)).isoformat(), moment) == text
