"""The table of runs: pages, columns, completion, groups and files, as each person sees them."""

import csv
import io
from datetime import timedelta
from typing import Any

import pytest

from apps.accounts.models import Project, User
from apps.clusters.models import Cluster
from apps.common.clock import now
from apps.runs import table_export
from apps.runs.models import Run, RunTag
from apps.sweeps.models import Sweep, Trial
from apps.training.models import MetricSummary, Task, TaskParameter
from apps.training.states import TaskState
from tests.api.conftest import Api

pytestmark = pytest.mark.database


def make_task(n: int, project: Project, owner: User, cluster: Cluster, **parameters: Any) -> Task:
    created = now() - timedelta(minutes=n)
    task = Task.objects.create(
        id=f"task-{project.pk}-{n}", project=project, owner=owner, cluster=cluster, name=f"run {n}", framework="jax",
        node_count=1, total_gpus=2, world_size=2, master="env", request={}, spec={}, summary={},
        state=TaskState.FAILED if n % 2 else TaskState.SUCCEEDED, state_since=created, created_at=created,
        started_at=created, ended_at=created + timedelta(hours=1),
    )  # fmt: skip
    for name, value in parameters.items():
        number = value if isinstance(value, float) else None
        TaskParameter.objects.create(task=task, name=name, value=str(value), number=number, source="request")
    MetricSummary.objects.create(
        task=task, name="loss", count=3, last=n, last_step=3, low=n / 2, low_step=2, high=9, high_step=1
    )
    return task


@pytest.fixture
def tasks(project, other_project, owner, stranger, cluster) -> list[Task]:
    """Four of the project, one of another, whose parameter nobody else has."""
    made = [make_task(n, project, owner.user, cluster, lr=0.1 / (1 + n // 2), opt="=adam") for n in range(4)]
    RunTag.objects.create(task=made[1], name="baseline")
    RunTag.objects.create(task=made[1], name="a")
    Run.objects.create(task=made[1], note="n" * 300, gpu_hours=1.5)
    Run.objects.create(task=made[3], archived_at=now())
    return [*made, make_task(0, other_project, stranger.user, cluster, secret_name="x")]


def list_names(api: Api, **query: Any) -> list[str]:
    return [item["task"]["taskName"] for item in api.get("/runs", **query).data["items"]]


def test_a_row_has_the_task_what_people_said_of_it_and_its_columns(viewer, tasks) -> None:
    page = viewer.get("/runs", query="tag:baseline", column=["lr", "metric.loss.best", "gpuHours", "tag", "cost"]).data
    [row] = page["items"]
    assert row["task"]["taskId"] == tasks[1].pk
    assert row["task"]["allowedActions"] == []
    assert row["tags"] == ["a", "baseline"]
    assert row["note"] == "n" * 200
    assert row["archivedAt"] is None
    assert row["values"] == {"param.lr": 0.1, "metric.loss.best": 0.5, "gpuHours": 1.5, "tag": "a, baseline"}
    assert (page["total"], page["totalIsExact"], page["nextCursor"]) == (1, True, None)
    assert page["searched"]["complete"]


def test_everybody_sees_the_runs_of_their_projects_alone(owner, colleague, viewer, stranger, admin, anonymous, tasks):
    for member in (owner, colleague, viewer):
        assert list_names(member) == ["run 0", "run 1", "run 2"]
    assert list_names(stranger) == ["run 0"]
    assert len(list_names(admin, archived="all")) == 5
    assert list_names(stranger, project="project-one") == []
    assert list_names(owner, project="project-one", archived="true") == ["run 3"]
    for path in ("/runs", "/runs/columns", "/runs/complete", "/runs/groups", "/runs/export"):
        assert anonymous.get(path, by="lr").status == 401


def test_pages_are_sorted_and_follow_each_other(owner, tasks) -> None:
    query = {"sort": "-metric.loss", "pageSize": 2, "archived": "all"}
    first = owner.get("/runs", **query).data
    second = owner.get("/runs", **query, cursor=first["nextCursor"]).data
    names = [item["task"]["taskName"] for page in (first, second) for item in page["items"]]
    assert names == ["run 3", "run 2", "run 1", "run 0"]
    assert second["nextCursor"] is None


@pytest.mark.parametrize(
    ("query", "field", "code"),
    [
        ({"query": "lr>"}, "query", "QUERY_VALUE_EXPECTED"),
        ({"query": "x" * 2001}, "query", "FIELD_TOO_LONG"),
        ({"sort": "tag"}, "sort", "QUERY_SORT_UNSUITABLE"),
        ({"sort": "metric."}, "sort", "QUERY_COLUMN_UNKNOWN"),
        ({"column": "metric."}, "column", "QUERY_COLUMN_UNKNOWN"),
        ({"cursor": "x"}, "cursor", "CURSOR_INVALID"),
    ],
)
def test_what_is_wrong_is_named(owner, query: dict[str, str], field: str, code: str) -> None:
    found = owner.get("/runs", **query)
    assert found.status == 400
    if code.startswith("FIELD"):
        assert list(found.problems) == [field]
    else:
        assert found.problems == {field: code}


def test_trials_of_a_sweep_are_found_by_its_id_or_name(owner, tasks) -> None:
    sweep = Sweep.objects.create(
        project_id=tasks[0].project_id, owner=owner.user, name="rates", spec={}, created_at=now()
    )
    for number in range(2):
        Trial.objects.create(sweep=sweep, number=number, parameters={}, task=tasks[number], created_at=now())
    for query in ("sweep:rates", f"sweep:{sweep.pk}", "sweep:rat*"):
        assert list_names(owner, query=query, sort="created") == ["run 1", "run 0"]
    assert list_names(owner, query="not sweep:rates") == ["run 2"]
    [row] = owner.get("/runs", query="run sweep:rates id:" + tasks[0].pk, column=["sweep"]).data["items"]
    assert row["values"] == {"sweep": sweep.pk}


def test_an_error_in_a_query_has_its_place(owner) -> None:
    [problem] = owner.get("/runs", query="  a status:nope").body["errors"]
    assert problem["place"] == {"from": 11, "to": 15}
    assert "nope" in problem["message"]


def test_names_that_no_run_of_the_reader_has_are_reported(owner, stranger, tasks) -> None:
    for query, unknown in {
        "statsu:failed": ["statsu"],
        "lr>100": [],
        "metric.loss>100 or metric.los<1 or metric.los.min<1": ["metric.los"],
        "status:stopped": [],
        "secret_name:x": ["secret_name"],
        "lr<1": [],
    }.items():
        assert owner.get("/runs", query=query).data["unknownNames"] == unknown
    assert stranger.get("/runs", query="secret_name:y").data["unknownNames"] == []


def test_too_many_columns_are_refused(owner) -> None:
    assert owner.get("/runs", column=[f"p{number}" for number in range(41)]).status == 400
    assert owner.get("/runs/groups", by=["a", "b", "c", "d"]).status == 400
    assert owner.get("/runs/groups").status == 400


def test_columns_are_those_of_the_readers_own_runs(owner, stranger, tasks) -> None:
    mine = {item["name"]: item for item in owner.get("/runs/columns").data["items"]}
    assert {"status", "param.lr", "param.opt", "metric.loss.last", "metric.loss.best", "gpuHours"} <= mine.keys()
    assert "param.secret_name" not in mine
    directions = {name: item["higherIsBetter"] for name, item in mine.items()}
    assert {directions[name] for name in ("metric.loss.last", "loss", "cost", "gpuHours")} == {False}
    assert directions["goodput"]
    assert {directions[name] for name in ("status", "param.lr", "gpus")} == {None}
    assert mine["status"]["choices"][0] == "initializing"
    assert mine["metric.loss.best"]["label"] == "loss (best)"
    found = [item["name"] for item in stranger.get("/runs/columns", search="SECRET").data["items"]]
    assert found == ["param.secret_name"]


def test_a_query_is_completed_from_the_readers_own_runs(owner, stranger, tasks) -> None:
    def complete(api: Api, query: str, **place: int) -> list[str]:
        return [item["text"] for item in api.get("/runs/complete", query=query, **place).data["items"]]

    assert complete(owner, "tag:b") == ["baseline"]
    assert complete(owner, "owner:") == ["owner"]
    assert complete(stranger, "owner:") == ["stranger"]
    assert complete(owner, "project:") == ["project-one"]
    assert complete(owner, "framework:j") == ["jax"]
    assert complete(owner, "secr") == []
    assert complete(stranger, "secr") == ["secret_name:"]
    assert complete(owner, "opt:") == ["=adam"]
    assert complete(stranger, "tag:") == []
    found = owner.get("/runs/complete", query="sta x", position=3).data
    assert (found["from"], found["to"], found["items"][0]["text"]) == (0, 3, "status:")


def test_groups_have_figures_of_their_numbers(owner, tasks) -> None:
    found = owner.get("/runs/groups", by=["lr"], column=["metric.loss", "status"], archived="all").data
    assert (found["groups"], found["tasks"], found["complete"]) == (2, 4, True)
    first = next(group for group in found["items"] if group["key"] == {"param.lr": 0.1})
    assert first["count"] == 2
    assert first["values"] == {
        "metric.loss.last": {"mean": 0.5, "std": 0.5, "min": 0.0, "max": 1.0, "count": 2}
    }  # fmt: skip


def test_groups_without_a_value_are_one_group(owner, tasks) -> None:
    [found] = owner.get("/runs/groups", by=["none", "status"], query="status:succeeded").data["items"]
    assert found["key"] == {"param.none": None, "status": "succeeded"}


def read_file(api: Api, **query: Any) -> bytes:
    assert api.user
    given = {"query": "", "format": "csv", "column": [], **query}

    return b"".join(table_export.export_runs(api.user, given).pieces)


def test_runs_are_exported_as_csv_without_formulas(owner, tasks) -> None:
    assert owner.get("/runs/export", column=["lr"]).status == 200
    rows = list(csv.reader(io.StringIO(read_file(owner, column=["lr", "opt"], sort="param.lr").decode())))
    assert rows[0] == ["id", "name", "param.lr", "param.opt"]
    assert [row[2:] for row in rows[1:]] == [["0.05", "'=adam"], ["0.1", "'=adam"], ["0.1", "'=adam"]]


def test_runs_are_exported_as_parquet_with_types(owner, tasks) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    columns = ["lr", "opt", "created", "metric.loss"]
    found = parquet.read_table(io.BytesIO(read_file(owner, column=columns, format="parquet", archived="all")))
    assert found.column("metric.loss.last").to_pylist() == [0.0, 1.0, 2.0, 3.0]
    assert found.column("param.lr (number)").to_pylist() == [0.1, 0.1, 0.05, 0.05]
    assert found.column("param.opt").to_pylist() == ["=adam"] * 4
    assert str(found.schema.field("created").type) == "timestamp[us, tz=UTC]"


def test_an_export_is_refused_before_it_begins(owner) -> None:
    assert owner.get("/runs/export", query="lr>").problems == {"query": "QUERY_VALUE_EXPECTED"}
    assert owner.get("/runs/export", format="xls").status == 400
