"""Patterns of printed lines that became curves: who sees and changes them, and what is refused."""

import pytest

from apps.common.clock import now
from apps.training.models import LogPattern, MetricPoint
from tests.api.conftest import Api
from tests.api.test_tasks_create import DOCUMENT

pytestmark = pytest.mark.usefixtures("environments", "dataset", "model")


def make_task(owner: Api) -> str:
    task: str = owner.post("/training-tasks", DOCUMENT).data["taskId"]
    fields = {"loss": {"name": "loss", "unit": ""}, "time": {"name": "time", "unit": "ms"}}
    LogPattern.objects.create(task_id=task, key="abc", line="iter {iter}: loss {loss}", example="iter 1", fields=fields)
    values = {"loss": 2.5, "time": 1.5}
    MetricPoint.objects.create(
        task_id=task, attempt=1, rank=0, step=1, at=now(), values=values, source="text", pattern="abc"
    )
    return task


def test_members_change_patterns_and_strangers_see_nothing(owner: Api, stranger: Api) -> None:
    task = make_task(owner)
    path = f"/training-tasks/{task}/log-patterns"
    (found,) = owner.get(path).data["items"]
    assert found == {
        "key": "abc",
        "line": "iter {iter}: loss {loss}",
        "example": "iter 1",
        "enabled": True,
        "fields": [{"name": "loss", "shownAs": "loss", "unit": ""}, {"name": "time", "shownAs": "time", "unit": "ms"}],
    }
    assert stranger.get(path).status == 404
    assert stranger.patch(f"{path}/abc", {"enabled": False}).status == 404
    changed = owner.patch(f"{path}/abc", {"fields": {"loss": "train_loss", "time": ""}})
    assert (changed.status, [field["shownAs"] for field in changed.data["fields"]]) == (200, ["train_loss", ""])
    metrics = f"/training-tasks/{task}/metrics"
    assert [point["values"] for point in owner.get(metrics).data["items"]] == [{"train_loss": 2.5}]
    assert [point["values"] for point in owner.get(f"{metrics}?names=train_loss").data["items"]] == [
        {"train_loss": 2.5}
    ]
    assert owner.patch(f"{path}/abc", {"enabled": False}).data["enabled"] is False
    assert owner.get(metrics).data["items"] == []


def test_unknown_patterns_and_fields_are_refused(owner: Api) -> None:
    task = make_task(owner)
    path = f"/training-tasks/{task}/log-patterns"
    unknown = owner.patch(f"{path}/nope", {"enabled": False})
    assert (unknown.status, unknown.error) == (404, "LOG_PATTERN_UNKNOWN")
    field = owner.patch(f"{path}/abc", {"fields": {"nope": "x"}})
    assert (field.status, field.error) == (404, "LOG_PATTERN_FIELD_UNKNOWN")
    twice = owner.patch(f"{path}/abc", {"fields": {"loss": "time"}})
    assert (twice.status, twice.error) == (409, "LOG_PATTERN_NAME_TAKEN")
    assert owner.patch(f"{path}/abc", {"fields": {"loss": "x" * 200}}).status == 400
    assert owner.patch(f"{path}/abc", {"fields": {"loss": "a\u0000b"}}).status == 400
    assert MetricPoint.objects.get(task=task).values == {"loss": 2.5, "time": 1.5}
