"""`/metrics` tells how much a platform is used and by which addresses: not to everybody who reaches it."""

import re
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import orjson
import pytest
import redis
import yaml
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from prometheus_client.parser import text_string_to_metric_families
from pytest_django import Settings

from apps.accounts.models import ApiToken
from apps.clusters.models import DevEnvironment, Lease
from apps.common import pubsub
from apps.common.clock import now
from apps.scheduling.models import Usage
from apps.training.models import Attempt, Task
from server import metrics
from server.metrics import gpus, tasks
from tests import promql
from tests.api.conftest import Api
from tests.api.test_tasks_create import changed
from tests.series import measured


class Broker:
    """With seven messages. These tests run without one."""

    def __enter__(self) -> "Broker":
        return self

    def __exit__(self, *about: object) -> None:
        pass

    def llen(self, name: str) -> int:
        return 7


def scrape(token: str = "") -> tuple[int, str]:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    response = Client(raise_request_exception=False).get("/metrics", headers=headers)
    return response.status_code, response.content.decode()


def test_anonymous_requests_get_no_metrics() -> None:
    status, said = scrape()
    assert status == 401
    assert "NOT_AUTHENTICATED" in said
    assert "python_info" not in said


@pytest.mark.parametrize("who", ["viewer", "owner"])
def test_users_who_are_not_administrators_are_refused(who: str, request: pytest.FixtureRequest) -> None:
    person: Api = request.getfixturevalue(who)
    status, said = scrape(person.token)
    assert status == 403
    assert "python_info" not in said


def test_an_administrators_token_reads_metrics(admin: Api) -> None:
    status, said = scrape(admin.token)
    assert status == 200
    assert "python_info" in said


def test_an_administrators_narrow_token_reads_metrics_with_the_scope_of_usage_alone(admin: Api) -> None:
    tokens = ApiToken.objects.filter(user=admin.user)
    tokens.update(scopes=["tasks:write"])
    assert scrape(admin.token)[0] == 403
    tokens.update(scopes=["usage:read"])
    assert scrape(admin.token)[0] == 200
    tokens.update(projects=["project-one"])
    assert scrape(admin.token)[0] == 403


def test_the_scrapers_token_reads_metrics_and_nothing_else(settings: Settings, admin: Api) -> None:
    settings.METRICS_TOKEN = "for the scraper"
    assert scrape("for the scraper")[0] == 200
    assert scrape("another")[0] == 401
    assert scrape()[0] == 401
    assert Api(token="for the scraper").get("/auth/me").status == 401


def test_an_empty_scraper_token_is_not_accepted(settings: Settings) -> None:
    settings.METRICS_TOKEN = ""
    assert Client().get("/metrics", headers={"Authorization": "Bearer "}).status_code == 401


def families(admin: Api) -> dict[str, dict[tuple[tuple[str, str], ...], float]]:
    """By name: by labels, values."""
    found: dict[str, dict[tuple[tuple[str, str], ...], float]] = {}
    for family in text_string_to_metric_families(scrape(admin.token)[1]):
        for sample in family.samples:
            if sample.name.startswith("fermi_"):
                found.setdefault(sample.name, {})[tuple(sorted(sample.labels.items()))] = sample.value
    return found


@pytest.fixture
def filled(environments: dict[str, DevEnvironment], dataset: None, model: None, colleague: Api) -> Task:
    """A task that was restarted and runs, with GPUs of which something is known."""
    task = Task.objects.get(pk=colleague.post("/training-tasks", changed()).data["taskId"])
    moment = now()
    Task.objects.filter(pk=task.pk).update(
        attempt=2, state="running", created_at=moment - timedelta(minutes=30), due_at=moment - timedelta(seconds=40)
    )
    for number, minutes, outcome in ((1, 20, "RANK_FAILED"), (2, 10, "")):
        began = moment - timedelta(minutes=minutes)
        ended = moment - timedelta(minutes=11) if outcome else None
        Attempt.objects.create(
            task=task, number=number, master_port=1, created_at=began, running_at=began, outcome=outcome,
            ended_at=ended, plan={},
        )  # fmt: skip
    for node in task.nodes.all():
        Lease.objects.create(environment_id=node.environment_id, holder=task.pk, since=moment - timedelta(minutes=20))
        values = {
            f"{name}:{gpu}": [10.0 + gpu]
            for gpu in range(node.processes)
            for name in ("gpu", "gpu_memory", "gpu_memory_total", "power", "temperature", "ecc")
        }
        disk = {"disk_used:/": [95.0], "disk_total:/": [100.0]}
        measured(f"env:{node.environment_id}", moment.timestamp() - 15, {**values, **disk})
        assert node.environment
        Usage.objects.create(
            task=task.pk, kind="training", project=task.project, environment=node.environment, zone=node.zone,
            gpus=node.processes, since=moment - timedelta(hours=2), until=moment - timedelta(hours=1),
            training=2700, lost=900,
        )  # fmt: skip
    return Task.objects.get(pk=task.pk)


def test_platform_metrics_are_exposed(filled: Task, admin: Api) -> None:
    told = families(admin)
    assert told["fermi_tasks"][(("state", "running"),)] == 1
    assert told["fermi_task_wait_seconds_24h_bucket"][(("class", "normal"), ("le", "900.0"))] == 1
    assert told["fermi_task_wait_seconds_24h_bucket"][(("class", "normal"), ("le", "300.0"))] == 0
    assert told["fermi_task_starts_1h"][()] == 2
    assert told["fermi_task_restarts_1h"] == {(("cause", "RANK_FAILED"),): 1}
    assert told["fermi_reconciler_lag_seconds"][()] >= 40
    assert told["fermi_goodput_ratio_30d"][()] == 0.75
    assert told["fermi_gpu_hours_30d"][(("part", "lost"),)] == 14 / 4
    held = {labels: count for labels, count in told["fermi_gpus"].items() if ("state", "held") in labels}
    assert sum(held.values()) == 14
    assert len(told["fermi_gpu_power_watts"]) == 14
    assert {dict(labels)["gpu"]: count for labels, count in told["fermi_gpu_ecc_errors_1h"].items()}["1"] == 11
    assert {dict(labels)["task"] for labels in told["fermi_gpu_power_watts"]} == {filled.pk}
    assert set(told["fermi_environment_disk_used_ratio"].values()) == {0.95}


def test_tasks_are_counted_without_loading_rows(filled: Task) -> None:
    """There are more of them each day."""
    if connection.vendor != "sqlite":
        pytest.skip("PostgreSQL reads a small table whole")
    with CaptureQueriesContext(connection) as captured:
        list(tasks.collect_states(now()))
    with connection.cursor() as cursor:
        for query in captured.captured_queries:
            plan = str(cursor.execute(f"EXPLAIN QUERY PLAN {query['sql']}").fetchall())
            assert "COVERING INDEX training_ta" in plan
    assert len(captured) == 2


def test_gpus_beyond_the_limit_are_counted_together(filled: Task, admin: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpus, "MAX_GPUS", 5)
    told = families(admin)
    assert len(told["fermi_gpu_utilization_percent"]) == 5
    assert told["fermi_gpus_left_out"][()] == 9


def test_a_failing_collector_leaves_out_only_its_own_metrics(
    filled: Task, admin: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(moment: object) -> None:
        raise RuntimeError

    monkeypatch.setitem(metrics.PARTS, "goodput", broken)
    told = families(admin)
    assert told["fermi_scrape_errors"][(("part", "goodput"),)] == 1
    assert told["fermi_scrape_errors"][(("part", "tasks"),)] == 0
    assert "fermi_gpu_hours_30d" not in told
    assert "fermi_tasks" in told


def expressions(root: Path) -> Iterator[tuple[str, str]]:
    """With where each stands."""
    for path in sorted((root / "deploy/grafana").glob("*.json")):
        board = orjson.loads(path.read_bytes())
        for panel in board["panels"]:
            for target in panel["targets"]:
                yield f"{path.name}: {panel['title']}", target["expr"]
        for variable in board["templating"]["list"]:
            if variable["type"] == "query":
                name, label = re.fullmatch(r"label_values\((\w+), (\w+)\)", variable["query"]["query"]).groups()  # type: ignore[union-attr]
                yield f"{path.name}: {variable['name']}", f"max by ({label}) ({name})"
    for group in yaml.safe_load((root / "deploy/prometheus/alerts.yaml").read_text())["groups"]:
        for rule in group["rules"]:
            assert {"summary", "summary_zh"} <= rule["annotations"].keys()
            yield rule["alert"], rule["expr"]


OF_THE_SCRAPE = {"instance", "job"}
"""Labels that Prometheus adds."""


def test_dashboards_and_alerts_use_existing_metrics_and_all_of_them(
    filled: Task, admin: Api, root: Path, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.TRACING = True
    monkeypatch.setattr(redis, "from_url", lambda *about, **more: Broker())
    monkeypatch.setattr(pubsub, "get_figure", {"sweep": 0.1}.get)
    told = families(admin)
    used: set[str] = set()
    for where, text in expressions(root):
        asked = promql.parse_query(text)
        assert asked.selectors, where
        for selector in asked.selectors:
            assert selector.name in told, where
            known = [dict(labels) for labels in told[selector.name]]
            assert (asked.grouped | selector.labels.keys()) - OF_THE_SCRAPE <= set().union(*known), where
            for label, value in selector.labels.items():
                assert value is None or value in {labels[label] for labels in known}, where
            used.add(selector.name)
    assert {name for name in told if not name.endswith(("_gsum", "_gcount"))} == used


@pytest.mark.parametrize("text", ["max by (", "max fermi_tasks", 'fermi_tasks{state="a" & 1}', "max(fermi_tasks"])
def test_invalid_promql_is_refused(text: str) -> None:
    with pytest.raises((ValueError, IndexError)):
        promql.parse_query(text)
