"""What tasks, environments and their ranks use, to whoever may see them."""

from datetime import UTC, timedelta

import pytest

from apps.clusters.models import Lease
from apps.common.clock import now
from apps.scheduling.models import Usage
from apps.training.models import Attempt, Task
from apps.workers.models import Worker
from tests.api.conftest import Api
from tests.api.test_tasks_create import changed
from tests.series import measured
from tests.workers import hosts

pytestmark = [pytest.mark.database, pytest.mark.usefixtures("environments", "dataset", "model")]
MINUTES = 10


@pytest.fixture
def task(colleague: Api) -> Task:
    """2 + 4 + 8 ranks that have run for ten minutes, and what was measured of it."""
    task = Task.objects.get(pk=colleague.post("/training-tasks", changed()).data["taskId"])
    began = now() - timedelta(minutes=MINUTES)
    Task.objects.filter(pk=task.pk).update(attempt=1, state="running", created_at=began - timedelta(hours=1))
    Attempt.objects.create(task=task, number=1, master_port=1, created_at=began, running_at=began, plan={})
    first, at = 0, began.timestamp()
    for node in task.nodes.all():
        Lease.objects.create(environment_id=node.environment_id, holder=task.pk, since=began)
        gpus = {f"gpu:{place}": [first + place] * 38 for place in range(node.processes)}
        measured(f"env:{node.environment_id}", at, {**gpus, "power:0": [300.0] * 38}, emulated=True)
        first += node.processes
    measured(f"task:{task.pk}", at, {f"rank_cpu:{rank}": [10 * rank] * 38 for rank in range(14)})
    measured("host:local", at, {"cpu": [50.0] * 38, "gpu:0": [99.0] * 38})
    return Task.objects.get(pk=task.pk)


def test_series_of_a_task_have_environment_and_rank(task: Task, viewer: Api, stranger: Api, anonymous: Api) -> None:
    path = f"/training-tasks/{task.pk}/telemetry"
    told = viewer.get(path).data
    gpus = [one for one in told["series"] if one["metric"] == "gpu" and one["node"] is not None]
    assert [(one["node"], one["index"], one["rank"]) for one in gpus] == [
        (node, str(place), rank)
        for node, first, many in ((0, 0, 2), (1, 2, 4), (2, 6, 8))
        for place, rank in enumerate(range(first, first + many))
    ]
    assert all({value for value in one["values"] if value is not None} == {one["rank"]} for one in gpus)
    assert all(len(one["values"]) == len(told["series"][0]["values"]) for one in told["series"])
    cpu = next(one for one in told["series"] if one["metric"] == "cpu")
    assert (cpu["node"], cpu["rank"], cpu["unit"], cpu["index"]) == (None, None, "%", "")
    assert told["emulated"] is True
    assert [mark["code"] for mark in told["marks"]] == ["ATTEMPT_STARTED"]
    assert stranger.get(path).status == 404
    assert anonymous.get(path).status == 401


def test_event_marks_show_failed_and_stopped_attempts(task: Task, viewer: Api) -> None:
    began = task.attempts.get().created_at
    for number, outcome in enumerate(("GAVE_WAY", "NODE_LOST", "COMPLETED"), 2):
        at = began + timedelta(minutes=number)
        Attempt.objects.create(
            task=task, number=number, master_port=1, created_at=at, ended_at=at, outcome=outcome, plan={}
        )
    marks = viewer.get(f"/training-tasks/{task.pk}/telemetry").data["marks"]
    ends = [(mark["outcome"], mark["failed"]) for mark in marks if mark["code"] == "ATTEMPT_ENDED"]
    assert ends == [("GAVE_WAY", False), ("NODE_LOST", True), ("COMPLETED", False)]
    assert not any(mark["failed"] for mark in marks if mark["code"] == "ATTEMPT_STARTED")


def test_series_can_be_filtered_by_node_rank_and_metric(task: Task, colleague: Api) -> None:
    path = f"/training-tasks/{task.pk}/telemetry"
    told = colleague.get(path, metric=["gpu", "rank_cpu"], node=[1]).data["series"]
    assert {(one["metric"], one["rank"]) for one in told if one["node"] is not None or one["metric"] == "rank_cpu"} == {
        (metric, rank) for metric in ("gpu", "rank_cpu") for rank in range(2, 6)
    }
    told = colleague.get(path, metric=["rank_cpu"], rank=[3]).data["series"]
    assert [(one["rank"], one["values"][0]) for one in told] == [(3, 30)]
    some = colleague.get(path, metric=["rank_cpu"], points=10).data
    assert some["stepSeconds"] == 120  # a multiple of the grain
    assert len(some["series"][0]["values"]) <= 10
    assert some["series"][0]["most"][0] == 0


def test_a_task_has_no_series_from_before_its_lease(task: Task, colleague: Api) -> None:
    node = task.nodes.first()
    assert node
    measured(f"env:{node.environment_id}", now().timestamp() - 3000, {"gpu:0": [77.0] * 10})
    hours = (now() - timedelta(hours=5)).isoformat()
    told = colleague.get(f"/training-tasks/{task.pk}/telemetry", **{"from": hours}).data
    assert all(77 not in one["values"] for one in told["series"])
    assert told["from"] >= (now() - timedelta(minutes=MINUTES + 2)).astimezone(UTC).isoformat()[:16]


def test_a_task_has_no_series_of_other_holders(task: Task, viewer: Api, colleague: Api) -> None:
    """A task that gave way in between, and one that has ended."""
    node = task.nodes.first()
    assert node
    began = now() - timedelta(minutes=MINUTES)
    Lease.objects.filter(environment=node.environment).update(since=began + timedelta(minutes=6))
    Usage.objects.create(
        task=task.pk, task_name=task.name, kind="training", project=task.project, owner="ann", zone="z", gpus=2,
        environment=node.environment, environment_name="e", since=began, until=began + timedelta(minutes=2),
    )  # fmt: skip
    told = viewer.get(f"/training-tasks/{task.pk}/telemetry", metric="power").data["series"]
    [power] = [one for one in told if one["rank"] == 0]
    known = [value is not None for value in power["values"]]
    assert 16 <= sum(known) <= 24  # of the 38 quarters of a minute
    assert not any(known[10:22])
    Lease.objects.filter(environment=node.environment).delete()
    told = viewer.get(f"/training-tasks/{task.pk}/telemetry/now").data["ranks"]
    assert [one["gpu"] for one in told][:3] == [None, None, 2]


def test_the_current_use_of_ranks_is_one_short_answer(task: Task, viewer: Api, stranger: Api) -> None:
    path = f"/training-tasks/{task.pk}/telemetry/now"
    told = viewer.get(path).data
    assert [one["rank"] for one in told["ranks"]] == list(range(14))
    assert told["ranks"][3] == {
        "rank": 3, "gpu": 3, "gpuMemory": None, "gpuMemoryTotal": None, "power": None, "temperature": None, "cpu": 30,
        "memory": None,
    }  # fmt: skip
    assert told["ranks"][6]["power"] == 300
    assert told["emulated"] is True
    assert stranger.get(path).status == 404


def test_an_environment_shows_its_use_and_holders(task: Task, colleague: Api, stranger: Api) -> None:
    node = task.nodes.first()
    assert node
    began = now() - timedelta(minutes=50)
    Usage.objects.create(
        task="task-gone", task_name="before", kind="training", project=task.project, owner="ann",
        environment=node.environment, environment_name="e", zone="z", gpus=2, since=began,
        until=began + timedelta(minutes=20),
    )  # fmt: skip
    path = f"/dev-environments/{node.environment_id}/telemetry"
    told = colleague.get(path).data
    assert [(one["id"], one["name"], one["to"] is None) for one in told["tasks"]] == [
        (None, "before", False), (task.pk, task.name, True),
    ]  # fmt: skip
    assert {one["metric"] for one in told["series"]} == {"cpu", "gpu", "power"}
    assert stranger.get(path).status == 404
    assert colleague.get("/dev-environments/env-nowhere/telemetry").status == 404


@pytest.mark.parametrize(("query", "field"), [
    ({"metric": "cpuu"}, "metric.0"), ({"points": 5}, "points"), ({"points": 10_000}, "points"),
    ({"from": "yesterday"}, "from"), ({"node": "-1"}, "node.0"), ({"nodes": "1"}, "nodes"),
])  # fmt: skip
def test_an_invalid_interval_is_refused(task: Task, colleague: Api, query: dict[str, str], field: str) -> None:
    answer = colleague.get(f"/training-tasks/{task.pk}/telemetry", **query)
    assert answer.status == 400
    assert field in answer.problems


def test_times_that_run_backwards_are_refused(task: Task, colleague: Api) -> None:
    later = {"from": "2026-05-02T00:00:00Z", "to": "2026-05-01T00:00:00Z"}
    answer = colleague.get(f"/training-tasks/{task.pk}/telemetry", **later)
    assert (answer.status, answer.error) == (400, "TIMES_BACKWARDS")
    past = {"from": "2001-05-01T00:00:00Z", "to": "2001-05-02T00:00:00Z"}
    assert colleague.get(f"/training-tasks/{task.pk}/telemetry", **past).data["series"] == []


def test_a_worker_shows_series_of_its_gpu_rank_and_host(colleague: Api, viewer: Api, stranger: Api) -> None:
    hosts(colleague, gn6=2)
    worker = Worker.objects.get(pk="gn6-0")
    at = now().timestamp() - 600
    measured("worker:gn6-0", at, {"gpu:0": [70.0] * 38, "rank_cpu:5": [120.0] * 38})
    measured(f"env:{worker.environment_id}", at, {"gpu:0": [70.0] * 38, "gpu:1": [1.0] * 38, "cpu": [30.0] * 38})
    Lease.objects.create(environment=worker.environment, holder="task-elsewhere", since=now())
    told = viewer.get("/workers/gn6-0/telemetry", metric=["cpu", "gpu", "rank_cpu"], points=100).data
    assert [(one["metric"], one["index"], one["node"], one["rank"]) for one in told["series"]] == [
        ("cpu", "", None, None), ("gpu", "0", None, None), ("rank_cpu", "5", None, 5),
    ]  # fmt: skip
    assert {value for value in told["series"][1]["values"] if value is not None} == {70}
    assert told["tasks"] == []
    assert stranger.get("/workers/gn6-0/telemetry").status == 404
    assert viewer.get("/workers/gn6-7/telemetry").status == 404
