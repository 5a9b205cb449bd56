"""Parameters of tasks, by which lists are searched, and what scripts log besides numbers."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from apps.training.core.parameters import store_parameters
from apps.training.logs import ingest
from apps.training.logs.ingest import LogReader
from apps.training.models import Attempt, Task, TaskMedia, TaskParameter
from fermi.metrics.parameters import MAX_PARAMETERS
from fermi.runner.record_frames import format_frame
from tests.api.conftest import Api
from tests.api.test_tasks_create import DOCUMENT
from tests.apps.attempts import write

pytestmark = pytest.mark.usefixtures("environments", "dataset", "model")


@pytest.fixture
def make_task(colleague: Api) -> Callable[..., Task]:
    def make(**hyperparameters: Any) -> Task:
        given = {**DOCUMENT, "hyperparameters": {**DOCUMENT.get("hyperparameters", {}), **hyperparameters}}
        task = Task.objects.get(pk=colleague.post("/training-tasks", given).data["taskId"])
        Task.objects.filter(pk=task.pk).update(attempt=1)
        Attempt.objects.create(task=task, number=1, master_port=29500, created_at=task.created_at)
        task.refresh_from_db()
        return task

    return make


def read(task: Task, *records: dict[str, Any], rank: int = 0) -> None:
    for record in records:
        write(task, format_frame(json.dumps(record).encode(), own_line=True), rank=rank)
    LogReader(task, 1).read()


def show(colleague: Api, task: Task) -> dict[str, tuple[str, float | None, str]]:
    found = colleague.get(f"/training-tasks/{task.pk}").data["parameters"]
    return {one["name"]: (one["value"], one["number"], one["source"]) for one in found}


def test_a_task_has_the_parameters_of_its_request_and_those_that_its_script_told(colleague, make_task):
    task = make_task(learningRate=0.01)
    assert show(colleague, task)["learningRate"] == ("0.01", 0.01, "request")
    told = {"learningRate": 0.02, "opt": {"name": "adamw"}, "api_key": "sk-0123456789abcdef", "amp": True}
    read(task, {"source": "wandb", "parameters": told})
    found = show(colleague, task)
    assert found["learningRate"] == ("0.02", 0.02, "wandb")
    assert (found["opt.name"], found["amp"]) == (("adamw", None, "wandb"), ("true", None, "wandb"))
    assert "api_key" not in found
    read(task, {"source": "mlflow", "parameters": {"amp": False, "other": 1}}, rank=1)
    assert show(colleague, task)["amp"] == ("true", None, "wandb"), "rank 0's"
    assert show(colleague, task)["other"] == ("1", 1.0, "mlflow")


def test_parameters_per_task_are_limited(make_task):
    task = make_task()
    store_parameters(task.pk, {f"p{n}": n for n in range(2 * MAX_PARAMETERS)}, "wandb")
    assert TaskParameter.objects.filter(task=task).count() == MAX_PARAMETERS


def test_tasks_are_found_by_their_parameters(colleague, make_task):
    first, second = make_task(learningRate=0.01), make_task(learningRate=0.1)
    store_parameters(first.pk, {"opt": "adamw", "batch": 64, "long": "x" * 900}, "wandb")
    store_parameters(second.pk, {"opt": "sgd", "batch": 64}, "wandb")

    def find(*conditions: str) -> list[str]:
        return [one["taskId"] for one in colleague.get("/training-tasks", parameter=list(conditions)).data["items"]]

    assert find("learningRate=1e-2") == [first.pk]
    assert find("learningRate>0.01") == [second.pk]
    assert find("learningRate<=0.1", "opt=adamw") == [first.pk]
    assert find("batch=64") == [second.pk, first.pk]
    assert find("batch=64", "opt=lion") == []
    assert find("long=" + "x" * 900) == [first.pk]
    assert find("long=" + "x" * 899) == []
    answer = colleague.get("/training-tasks", parameter=["opt>a"])
    assert (answer.status, answer.error) == (400, "PARAMETER_CONDITION_INVALID")


def test_media_are_listed_with_the_path_of_their_file(colleague, make_task):
    task = make_task()
    media = {"kind": "image", "name": "samples", "path": "media/1.png"}
    read(task, {"source": "wandb", "step": 1, "media": media},
         {"source": "wandb", "step": 2, "media": {**media, "path": "media/2.png"}},
         {"source": "wandb", "step": 2, "media": {**media, "kind": "text", "path": "media/2.txt"}},
         {"source": "wandb", "step": 3, "media": {**media, "path": "../../etc/passwd"}})  # fmt: skip
    found = colleague.get(f"/training-tasks/{task.pk}/media", kind="image").data["items"]
    assert [(one["step"], one["path"], one["source"]) for one in found] == [
        (2, "media/2.png", "wandb"), (1, "media/1.png", "wandb"),
    ]  # fmt: skip
    assert colleague.get(f"/training-tasks/{task.pk}/media").data["total"] == 3


def test_rows_of_media_are_thinned_and_limited(make_task, monkeypatch):
    monkeypatch.setattr(ingest, "DENSE_MEDIA", 4)
    monkeypatch.setattr(ingest, "MAX_MEDIA", 20)
    task = make_task()
    for begin in range(0, 40, 10):
        read(task, *({"source": "wandb", "step": step, "media": {"kind": "image", "name": "a", "path": f"{step}.png"}}
                     for step in range(begin, begin + 10)))  # fmt: skip
    steps = list(TaskMedia.objects.order_by("step").values_list("step", flat=True))
    assert steps[:4] == [0, 1, 2, 3 if 3 in steps else 5]
    assert (len(steps) < 20, steps[-1]) == (True, 39)
    for name in range(50):
        read(task, {"source": "wandb", "step": 1, "media": {"kind": "text", "name": f"n{name}", "path": "a.txt"}})
    assert TaskMedia.objects.count() == 20
    assert TaskMedia.objects.filter(name="n49").exists()
