"""MLflow's REST API: what ranks write of their task, and who reads it."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client

from apps.accounts.models import ApiToken
from apps.mlflow.models import MetricValue, RunMetric
from apps.training.models import Attempt, MetricPoint, MetricSummary, Task, TaskParameter
from apps.training.public import make_run_token
from apps.training.states import TaskState
from tests.api.conftest import Answer, Api
from tests.api.test_tasks_create import DOCUMENT

pytestmark = [pytest.mark.usefixtures("environments", "dataset", "model"), pytest.mark.database]


class Mlflow:
    """A client of MLflow's REST API with a token. `recorded`: as a process that the probe records."""

    def __init__(self, token: str, *, recorded: bool = False) -> None:
        self.token, self.recorded = token, recorded
        self.client = Client(raise_request_exception=False)

    def send(self, method: str, path: str, body: Any = None, /, **query: Any) -> Answer:
        headers = {"Accept-Language": "en"}
        if self.token:
            headers["Authorization"] = f"Bearer {self.token}"
        if self.recorded:
            headers["X-Fermi-Recorded"] = "1"
        response = self.client.generic(
            method,
            f"/mlflow/api/2.0/{path}",
            body if isinstance(body, bytes) else json.dumps(body).encode() if body is not None else b"",
            content_type="application/json",
            headers=headers,
            query_params=query,
        )
        if response.streaming:
            return Answer(response.status_code, b"".join(response.streaming_content))
        return Answer(response.status_code, json.loads(response.content))

    def get(self, path: str, /, **query: Any) -> Any:
        return self._check(self.send("GET", f"mlflow/{path}", **query))

    def post(self, path: str, /, **body: Any) -> Any:
        return self._check(self.send("POST", f"mlflow/{path}", body))

    def refuse(self, method: str, path: str, body: Any = None, /, **query: Any) -> tuple[int, str]:
        answer = self.send(method, path, body, **query)
        assert answer.status >= 400, answer.body
        assert answer.body["message"], answer.body
        return answer.status, answer.body["error_code"]

    @staticmethod
    def _check(answer: Answer) -> Any:
        assert answer.status == 200, answer.body
        return answer.body


@pytest.fixture
def make_task(colleague: Api) -> Callable[..., Task]:
    def make(name: str = "t", **hyperparameters: Any) -> Task:
        given = {
            **DOCUMENT,
            "taskName": name,
            "hyperparameters": {**DOCUMENT.get("hyperparameters", {}), **hyperparameters},
        }
        task = Task.objects.get(pk=colleague.post("/training-tasks", given).data["taskId"])
        begin_attempt(task, 1)
        return task

    return make


def begin_attempt(task: Task, number: int) -> None:
    Task.objects.filter(pk=task.pk).update(attempt=number, state=TaskState.RUNNING)
    Attempt.objects.create(task=task, number=number, master_port=29500, created_at=task.created_at)
    task.refresh_from_db()


@pytest.fixture
def task(make_task: Callable[..., Task]) -> Task:
    return make_task()


@pytest.fixture
def ranks(task: Task) -> Mlflow:
    return Mlflow(make_run_token(task.pk, 1))


def pairs(found: list[dict[str, Any]]) -> dict[str, Any]:
    return {one["key"]: one["value"] for one in found}


def test_ranks_go_on_with_the_run_of_their_task(ranks, task):
    assert ranks.get("runs/get", run_id=task.pk)["run"]["info"]["status"] == "RUNNING"
    ranks.post("runs/update", run_id=task.pk, status="RUNNING")
    ranks.post("runs/log-parameter", run_id=task.pk, key="lr", value="0.1")
    ranks.post("runs/log-metric", run_id=task.pk, key="loss", value=2.5, step=1, timestamp=1_700_000_000_000)
    ranks.post(
        "runs/log-batch",
        run_id=task.pk,
        metrics=[
            {"key": "loss", "value": 1.5, "step": "2", "timestamp": "1700000001000"},
            {"key": "bad", "value": "NaN", "step": 2, "timestamp": 1700000001000},
            {"key": "high", "value": "Infinity", "step": 2, "timestamp": 1700000001000},
        ],
        params=[{"key": "depth", "value": "3"}],
        tags=[{"key": "mlflow.note.content", "value": "a note"}],
    )
    data = ranks.get("runs/get", run_id=task.pk)["run"]["data"]
    assert pairs(data["params"]) == {"lr": "0.1", "depth": "3"}
    assert pairs(data["metrics"])["loss"] == 1.5
    assert pairs(data["metrics"])["bad"] == "NaN"
    assert pairs(data["metrics"])["high"] > 1e308
    assert pairs(data["tags"])["mlflow.note.content"] == "a note"
    history = ranks.get("metrics/get-history", run_id=task.pk, metric_key="loss")["metrics"]
    assert [(one["step"], one["value"]) for one in history] == [(1, 2.5), (2, 1.5)]


def test_a_value_that_is_logged_late_is_not_the_newest(ranks, task):
    ranks.post("runs/log-metric", run_id=task.pk, key="loss", value=1.0, step=5, timestamp=1)
    ranks.post("runs/log-metric", run_id=task.pk, key="loss", value=9.0, step=4, timestamp=2)
    assert RunMetric.objects.get(run=task.pk, key="loss").value == 1.0
    assert MetricValue.objects.filter(run=task.pk).count() == 2


def test_the_first_run_that_ranks_begin_is_the_tasks_and_later_ones_are_below_it(ranks, task, project):
    first = ranks.post("runs/create", experiment_id="0", run_name="first", start_time=1_700_000_000_000)["run"]
    assert (first["info"]["run_id"], first["info"]["run_name"]) == (task.pk, "first")
    assert first["info"]["experiment_id"] == project.pk
    second = ranks.post("runs/create", experiment_id="0", run_name="second")["run"]
    assert second["info"]["run_id"] != task.pk
    assert pairs(second["data"]["tags"])["mlflow.parentRunId"] == task.pk
    ranks.post("runs/log-metric", run_id=second["info"]["run_id"], key="loss", value=3, step=0)
    assert pairs(ranks.get("runs/get", run_id=task.pk)["run"]["data"]["metrics"]) == {}


def test_the_next_attempt_goes_on_with_the_same_run(ranks, task):
    ranks.post("runs/create", experiment_id="0", run_name="one")
    ranks.post("runs/log-parameter", run_id=task.pk, key="lr", value="0.1")
    begin_attempt(task, 2)
    again = Mlflow(make_run_token(task.pk, 2))
    assert again.post("runs/create", experiment_id="0")["run"]["info"]["run_id"] == task.pk
    again.post("runs/log-parameter", run_id=task.pk, key="lr", value="0.2")
    assert pairs(again.get("runs/get", run_id=task.pk)["run"]["data"]["params"]) == {"lr": "0.2"}
    assert ranks.refuse("POST", "mlflow/runs/log-parameter", {"run_id": task.pk, "key": "a", "value": "1"})[0] == 401


def test_a_run_is_in_the_experiment_that_a_script_names(ranks, task, project):
    assert ranks.refuse("GET", "mlflow/experiments/get-by-name", experiment_name="mine") == (
        404,
        "RESOURCE_DOES_NOT_EXIST",
    )
    created = ranks.post("experiments/create", name="mine", tags=[{"key": "a", "value": "b"}])["experiment_id"]
    assert ranks.refuse("POST", "mlflow/experiments/create", {"name": "mine"}) == (400, "RESOURCE_ALREADY_EXISTS")
    ranks.post("runs/create", experiment_id=created)
    ranks.post("experiments/create", name="later")
    assert ranks.get("runs/get", run_id=task.pk)["run"]["info"]["experiment_id"] == created
    found = ranks.post("runs/search", experiment_ids=[created])["runs"]
    assert [run["info"]["run_id"] for run in found] == [task.pk]
    assert ranks.post("runs/search", experiment_ids=[project.pk]).get("runs", []) == []
    names = [one["name"] for one in ranks.post("experiments/search", max_results=10)["experiments"]]
    assert names == [project.name, "later", "mine"]


def test_values_that_no_record_has_become_curves_and_parameters_of_the_task(ranks, task):
    ranks.post("runs/log-batch", run_id=task.pk, metrics=[
        {"key": "loss", "value": 2.0, "step": 1, "timestamp": 1_700_000_000_000},
        {"key": "loss", "value": 1.0, "step": 2, "timestamp": 1_700_000_001_000},
    ], params=[{"key": "optimizer", "value": "adam"}])  # fmt: skip
    points = MetricPoint.objects.filter(task=task, source="mlflow").order_by("step")
    assert [(point.step, point.values) for point in points] == [(1, {"loss": 2.0}), (2, {"loss": 1.0})]
    summary = MetricSummary.objects.get(task=task, name="loss")
    assert (summary.last, summary.low, summary.high, summary.count) == (1.0, 1.0, 2.0, 2)
    assert TaskParameter.objects.get(task=task, name="optimizer").value == "adam"


def test_a_value_that_is_logged_again_for_a_model_is_stored_once(ranks, task):
    value = {"key": "loss", "value": 2.0, "step": 1, "timestamp": 1_700_000_000_000}
    ranks.post("runs/log-batch", run_id=task.pk, metrics=[value])
    ranks.post("runs/log-batch", run_id=task.pk, metrics=[{**value, "model_id": "m-1"}])
    assert len(ranks.get("metrics/get-history", run_id=task.pk, metric_key="loss")["metrics"]) == 1
    assert MetricPoint.objects.filter(task=task).count() == 1


def test_values_of_a_process_that_is_recorded_are_no_second_curve(task):
    recorded = Mlflow(make_run_token(task.pk, 1), recorded=True)
    recorded.post("runs/log-metric", run_id=task.pk, key="loss", value=2.0, step=1)
    assert not MetricPoint.objects.filter(task=task).exists()
    assert MetricValue.objects.filter(run=task.pk).count() == 1


def test_ranks_write_to_their_own_task_only(ranks, make_task, task):
    other = make_task("other")
    for path, body in (
        ("runs/log-metric", {"key": "a", "value": 1}),
        ("runs/update", {"status": "FINISHED"}),
        ("runs/set-tag", {"key": "a", "value": "b"}),
        ("runs/delete", {}),
    ):
        assert ranks.refuse("POST", f"mlflow/{path}", {"run_id": other.pk, **body}) == (403, "PERMISSION_DENIED"), path
    assert ranks.get("runs/get", run_id=other.pk)["run"]["info"]["run_id"] == other.pk, "but they read their project"


def test_rows_of_a_task_and_a_run_are_limited(ranks, task, monkeypatch):
    from apps.common.row_bounds import MAX_ROWS
    from apps.mlflow.services import values

    ranks.post("runs/create", experiment_id="0")
    for kind, path, body in (
        ("mlflow-runs", "runs/create", {"experiment_id": "0"}),
        ("mlflow-experiments", "experiments/create", {"name": "e"}),
        ("mlflow-models", "logged-models", {"experiment_id": "0"}),
        ("mlflow-registered-models", "registered-models/create", {"name": "m"}),
    ):
        with monkeypatch.context() as patch:
            patch.setitem(MAX_ROWS, kind, 0)
            assert ranks.refuse("POST", f"mlflow/{path}", body)[1] == "RESOURCE_LIMIT_EXCEEDED", kind
        ranks.post(path, **body)
    for name in ("MAX_VALUES", "MAX_METRICS", "MAX_ENTRIES"):
        monkeypatch.setattr(values, name, 2)
    for step in range(4):
        ranks.post("runs/log-metric", run_id=task.pk, key="loss", value=step, step=step)
    assert MetricValue.objects.filter(run=task.pk).count() == 2
    assert RunMetric.objects.get(run=task.pk, key="loss").value == 3, "the newest one is known, and training goes on"
    many = {"run_id": task.pk, "metrics": [{"key": f"m{number}", "value": 1} for number in range(3)]}
    assert ranks.refuse("POST", "mlflow/runs/log-batch", many)[0] == 400
    many = {"run_id": task.pk, "params": [{"key": f"p{number}", "value": "1"} for number in range(3)]}
    assert ranks.refuse("POST", "mlflow/runs/log-batch", many)[0] == 400


def test_a_token_ends_with_its_task(ranks, task):
    Task.objects.filter(pk=task.pk).update(state=TaskState.SUCCEEDED, due_at=None)
    assert ranks.refuse("GET", "mlflow/runs/get", run_id=task.pk) == (401, "UNAUTHENTICATED")


def test_the_address_that_clients_print_leads_to_the_console():
    answer = Client().get("/mlflow/")
    assert (answer.status_code, answer.headers["Location"]) == (302, "/")


def test_a_token_opens_nothing_else(ranks, task):
    api = Api()
    api.token = ranks.token
    assert api.get("/training-tasks").status == 401
    assert Mlflow(ranks.token[:-1] + "x").refuse("GET", "mlflow/runs/get", run_id=task.pk)[0] == 401


def test_who_reads_and_who_does_not(ranks, task, owner, colleague, viewer, stranger, anonymous):
    ranks.post("runs/log-metric", run_id=task.pk, key="loss", value=2.0, step=1)
    for person in (owner, colleague, viewer):
        own = Mlflow(person.token)
        assert pairs(own.get("runs/get", run_id=task.pk)["run"]["data"]["metrics"]) == {"loss": 2.0}
        body = {"run_id": task.pk, "key": "loss", "value": 1}
        assert own.refuse("POST", "mlflow/runs/log-metric", body) == (403, "PERMISSION_DENIED")
    assert Mlflow(stranger.token).refuse("GET", "mlflow/runs/get", run_id=task.pk) == (404, "RESOURCE_DOES_NOT_EXIST")
    assert Mlflow(anonymous.token).refuse("GET", "mlflow/runs/get", run_id=task.pk) == (401, "UNAUTHENTICATED")
    assert Mlflow(stranger.token).post("runs/search", experiment_ids=["0"]).get("runs", []) == []


def test_a_task_that_logged_nothing_is_a_run_with_what_the_platform_knows(colleague, make_task):
    task = make_task("plain", learningRate=0.25)
    MetricSummary.objects.create(
        task=task, name="val_loss", count=1, last=0.5, last_step=7, low=0.5, low_step=7, high=0.5, high_step=7
    )
    own = Mlflow(colleague.token)
    run = own.get("runs/get", run_id=task.pk)["run"]
    assert pairs(run["data"]["params"])["learningRate"] == "0.25"
    assert run["data"]["metrics"] == [{"key": "val_loss", "value": 0.5, "step": 7, "timestamp": 0}]
    MetricPoint.objects.create(task=task, attempt=1, rank=0, step=7, at=task.created_at, values={"val_loss": 0.5})
    history = own.get("metrics/get-history", run_id=task.pk, metric_key="val_loss")["metrics"]
    assert [(one["step"], one["value"]) for one in history] == [(7, 0.5)]
    for filter_text, count in (
        ("metrics.val_loss < 1 AND params.learningRate = '0.25'", 1),
        ("metrics.val_loss > 1", 0),
        ("attributes.status = 'RUNNING' and run_name LIKE 'pl%'", 1),
        ("params.missing IS NULL", 1),
        ("tags.missing = 'x'", 0),
        ("attributes.run_id IN ('a', '" + task.pk + "')", 1),
    ):
        found = own.post("runs/search", experiment_ids=["0"], filter=filter_text)["runs"]
        assert len(found) == count, filter_text


def test_runs_are_found_sorted_page_by_page(ranks, task, colleague):
    ranks.post("runs/create", experiment_id="0")
    for number in range(5):
        run = ranks.post("runs/create", experiment_id="0", run_name=f"r{number}")["run"]["info"]["run_id"]
        ranks.post("runs/log-metric", run_id=run, key="score", value=number, step=0)
        ranks.post("runs/log-parameter", run_id=run, key="half", value=str(number % 2))
    own, names, token = Mlflow(colleague.token), [], ""
    while True:
        page = own.post("runs/search", experiment_ids=["0"], max_results=2, order_by=["metrics.score DESC"],
                        page_token=token)  # fmt: skip
        names += [run["info"]["run_name"] for run in page["runs"]]
        token = page.get("next_page_token", "")
        if not token:
            break
    assert names[:5] == ["r4", "r3", "r2", "r1", "r0"]
    assert len(names) == 6, "the task's own run has no score, and is last"
    found = own.post("runs/search", experiment_ids=["0"], filter="params.half = '1'", order_by=["start_time ASC"])
    assert [run["info"]["run_name"] for run in found["runs"]] == ["r1", "r3"]


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("POST", "mlflow/runs/log-metric", {"key": "a", "value": "many"}, 400),
        ("POST", "mlflow/runs/log-metric", {"key": "", "value": 1}, 400),
        ("POST", "mlflow/runs/log-metric", {"key": "a", "value": 1, "step": 1 << 70}, 400),
        ("POST", "mlflow/runs/log-metric", [1], 400),
        ("POST", "mlflow/runs/log-batch", {"metrics": [{"key": "a", "value": 1}] * 1001}, 400),
        ("POST", "mlflow/runs/log-parameter", {"key": "a\0", "value": "b"}, 400),
        ("POST", "mlflow/runs/set-tag", {"key": "a", "value": "x" * 8001}, 400),
        ("POST", "mlflow/runs/update", {"status": "DANCING"}, 400),
        ("POST", "mlflow/runs/search", {"experiment_ids": ["0"], "filter": "metrics.loss <"}, 400),
        ("POST", "mlflow/runs/search", {"experiment_ids": ["0"], "filter": "metrics.loss LIKE 'a'"}, 400),
        ("POST", "mlflow/runs/search", {"experiment_ids": ["0"], "filter": "attributes.color = 'a'"}, 400),
        ("POST", "mlflow/runs/search", {"experiment_ids": ["0"], "page_token": "x"}, 400),
        ("POST", "mlflow/runs/search", {"experiment_ids": ["nowhere"]}, 404),
        ("POST", "mlflow/runs/explode", {}, 404),
        ("PUT", "mlflow/runs/get", {}, 404),
        ("GET", "something/else", None, 404),
    ],
)
def test_what_cannot_be_done_is_refused_in_the_shape_of_mlflow(ranks, task, method, path, body, status):
    if isinstance(body, dict) and "search" not in path:
        body = {"run_id": task.pk, **body}
    assert ranks.refuse(method, path, body)[0] == status


def test_a_narrow_token_reads_runs_with_one_scope_and_logs_with_another(ranks, task, colleague):
    ranks.post("runs/create", experiment_id="0")
    own, tokens = Mlflow(colleague.token), ApiToken.objects.filter(user=colleague.user)
    tokens.update(scopes=["tasks:write"])
    assert own.refuse("POST", "mlflow/runs/search", {"experiment_ids": ["0"]})[0] == 403
    tokens.update(scopes=["runs:read"])
    assert own.post("runs/search", experiment_ids=["0"])["runs"]
    assert own.get("runs/get", run_id=task.pk)
    model = {"name": "narrow"}
    assert own.refuse("POST", "mlflow/registered-models/create", model) == (403, "PERMISSION_DENIED")
    for method, path in (("PATCH", "search"), ("DELETE", "search"), ("DELETE", "x/tags/search")):
        assert own.refuse(method, f"mlflow/logged-models/{path}", {}) == (403, "PERMISSION_DENIED")
    tokens.update(scopes=["tracking:write"])
    own.post("registered-models/create", **model)
    tokens.update(scopes=None, tasks=[task.pk])
    assert own.refuse("POST", "mlflow/registered-models/create", model)[0] == 403
