"""Requests of MLflow's client to the platform's own server, and to others."""

from types import SimpleNamespace
from typing import Any

import pytest

from fermi.probe import mlflow_hooks, records

PLATFORM = "http://127.0.0.1:8000/mlflow"


class Client:
    """MLflow's module of requests, `mlflow.utils.rest_utils`, whose server answers with `status` or is away."""

    def __init__(self) -> None:
        self.sent: list[tuple[Any, str, dict[str, Any]]] = []
        self.status, self.is_away = 200, False

    def http_request(self, host_creds: Any, endpoint: str, method: str, **kwargs: Any) -> Any:
        self.sent.append((host_creds, endpoint, kwargs))
        if self.is_away:
            raise ConnectionError("refused")
        return SimpleNamespace(status_code=self.status, text="{}")


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> Client:
    monkeypatch.setenv("FERMI_MLFLOW_URI", PLATFORM)
    monkeypatch.setenv("RANK", "3")
    monkeypatch.setattr(records, "_writer", object())
    client = Client()
    mlflow_hooks.requests(None, client)  # type: ignore[arg-type]
    return client


def request(client: Client, host: str, endpoint: str, token: str = "fermi-run-abc") -> Any:
    creds = SimpleNamespace(host=host, token=token)
    answer = client.http_request(creds, endpoint, "POST")
    assert creds.token == token, "the script's own object stays as it is"
    return answer


def test_requests_to_the_platform_say_that_their_values_are_recorded(client):
    request(client, PLATFORM, "/api/2.0/mlflow/runs/get")
    _, _, kwargs = client.sent[0]
    assert kwargs["extra_headers"] == {"X-Fermi-Rank": "3", "X-Fermi-Recorded": "1"}


def test_requests_of_a_process_without_records_do_not_say_so(client, monkeypatch):
    monkeypatch.setattr(records, "_writer", None)
    request(client, PLATFORM, "/api/2.0/mlflow/runs/log-metric")
    assert client.sent[0][2]["extra_headers"] == {"X-Fermi-Rank": "3"}


def test_another_server_gets_neither_the_token_nor_a_header(client):
    request(client, "https://mlflow.example.org", "/api/2.0/mlflow/runs/get")
    request(client, "https://mlflow.example.org", "/api/2.0/mlflow/runs/get", token="own")
    assert [(creds.token, kwargs) for creds, _, kwargs in client.sent] == [(None, {}), ("own", {})]


def test_a_rank_goes_on_while_the_platform_is_away(client):
    client.is_away = True
    answer = request(client, PLATFORM, "/api/2.0/mlflow/runs/log-metric")
    assert (answer.status_code, answer.json()) == (200, {})
    request(client, PLATFORM, "/api/2.0/mlflow/runs/log-batch")
    assert len(client.sent) == 1, "it is not tried again at once"
    with pytest.raises(ConnectionError):
        request(client, PLATFORM, "/api/2.0/mlflow/runs/get")


def test_a_server_that_is_busy_delays_no_rank(client):
    client.status = 429
    assert request(client, PLATFORM, "/api/2.0/mlflow/runs/set-tag").status_code == 200


def test_a_refusal_is_passed_on(client):
    client.status = 400
    assert request(client, PLATFORM, "/api/2.0/mlflow/runs/log-parameter").status_code == 400


class TrackingServiceClient:
    """MLflow's class of this name, in mlflow/tracking/_tracking_service/client.py."""

    def __init__(self, uri: str) -> None:
        self.tracking_uri = uri

    def log_metric(self, run_id, key, value, timestamp=None, step=None, synchronous=True, model_id=None):
        pass

    def log_param(self, run_id, key, value, synchronous=True):
        pass

    def set_tag(self, run_id, key, value, synchronous=True):
        pass

    def log_batch(self, run_id, metrics=(), params=(), tags=(), synchronous=True):
        pass


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    monkeypatch.setenv("FERMI_MLFLOW_URI", PLATFORM)
    monkeypatch.setenv("FERMI_TASK_ID", "task-1")
    monkeypatch.setenv("RANK", "0")
    found: list[dict[str, Any]] = []
    monkeypatch.setattr(records, "add_record", found.append)
    for name in ("log_metric", "log_param", "set_tag", "log_batch"):
        monkeypatch.setattr(TrackingServiceClient, name, getattr(TrackingServiceClient, name))
    module = SimpleNamespace(TrackingServiceClient=TrackingServiceClient)
    mlflow_hooks.client(SimpleNamespace(steps=0), module)  # type: ignore[arg-type]
    return found


def test_values_of_runs_below_the_tasks_own_are_no_points_of_its_curves(recorded):
    own = TrackingServiceClient(PLATFORM)
    own.log_metric("child", "loss", 0.5, 1, 1)
    own.log_batch("child", [SimpleNamespace(key="loss", value=0.5, step=1, timestamp=1)])
    own.log_param("child", "lr", "1")
    assert recorded == []
    own.log_metric("task-1", "loss", 0.5, 1, 1)
    TrackingServiceClient("https://mlflow.example.org").log_metric("child", "other", 0.5, 1, 1)
    assert [one["values"] for one in recorded] == [{"loss": 0.5}, {"other": 0.5}]


def test_a_value_that_is_logged_again_for_a_model_is_recorded_once(recorded):
    own = TrackingServiceClient(PLATFORM)
    own.log_metric("task-1", "loss", 0.5, 1000, 1)
    again = SimpleNamespace(key="loss", value=0.5, step=1, timestamp=1000, model_id="m-1")
    own.log_batch("task-1", [again, SimpleNamespace(key="loss", value=0.4, step=2, timestamp=1001, model_id="m-1")])
    assert [(one["step"], one["values"]) for one in recorded] == [(1, {"loss": 0.5}), (2, {"loss": 0.4})]


def test_nothing_is_replaced_where_the_task_has_a_server_of_its_own(monkeypatch):
    monkeypatch.delenv("FERMI_MLFLOW_URI", raising=False)
    client = Client()
    mlflow_hooks.requests(None, client)  # type: ignore[arg-type]
    assert "http_request" not in vars(client)
