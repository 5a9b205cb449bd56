"""The speed that is to be expected of a choice, in the preview and beside what the task did."""

import pytest
from django.utils import timezone

from apps.training.models import MetricPoint, Preflight, Task
from apps.training.states import TaskState
from tests.api.conftest import Api
from tests.api.test_tasks_create import DOCUMENT

pytestmark = pytest.mark.usefixtures("environments", "dataset", "model")

PAIRS = [("env-001", "env-003"), ("env-003", "env-005"), ("env-005", "env-001")]


def test_a_preview_shows_expected_speed_and_its_assumptions(colleague: Api) -> None:
    found = colleague.post("/training-tasks/preview", DOCUMENT).data["scaling"]
    assert [(row["nodes"], row["processes"]) for row in found["rows"]] == [(1, 2), (2, 6), (3, 14)]
    assert found["rows"][-1]["theoretical"] == 7
    assert found["preflightId"] is None
    assert {reason["code"] for reason in found["reasons"]} >= {"SCALING_NETWORK_ASSUMED", "SCALING_COMMUNICATION"}


def test_a_measured_preflight_test_replaces_assumptions(colleague: Api, stranger: Api) -> None:
    body = {"environmentIds": [pair[0] for pair in PAIRS], "level": "quick"}
    test = colleague.post("/preflights", body).data["id"]
    pairs = [{"from": a, "to": b, "rttMs": 21.0, "bandwidthMbps": 900.0} for a, b in PAIRS]
    Preflight.objects.filter(pk=test).update(report={"pairs": pairs})
    Task.objects.filter(pk=test).update(state=TaskState.SUCCEEDED, due_at=None, ended_at=timezone.now())
    found = colleague.post("/training-tasks/preview", DOCUMENT).data["scaling"]
    assert found["preflightId"] == test
    [network] = [reason for reason in found["reasons"] if reason["code"] == "SCALING_NETWORK_MEASURED"]
    assert "21" in network["message"]


def test_a_task_shows_expected_and_measured_speed(colleague: Api) -> None:
    task = colleague.post("/training-tasks", DOCUMENT).data["taskId"]
    before = colleague.get(f"/training-tasks/{task}/scaling").data
    assert (before["tokensPerSecond"], before["offBy"]) == (None, None)
    high = before["expected"]["tokensPerSecond"]["high"]
    Task.objects.filter(pk=task).update(attempt=1)
    MetricPoint.objects.bulk_create(
        MetricPoint(task_id=task, attempt=1, rank=0, step=step, at=timezone.now(), values={"tokens_per_s": high * 2})
        for step in range(3)
    )
    nothing = {"tokens_per_s": None}  # of a line that said NaN
    MetricPoint.objects.create(task_id=task, attempt=1, rank=0, step=3, at=timezone.now(), values=nothing)
    after = colleague.get(f"/training-tasks/{task}/scaling").data
    assert after["tokensPerSecond"] == high * 2
    assert after["offBy"] == pytest.approx(1)
