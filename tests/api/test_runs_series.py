"""Curves of several runs on one axis, and what runs can be compared by."""

from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from apps.accounts.models import Project
from apps.common.clock import now
from apps.scheduling.models import Usage
from apps.training.core import metric_blocks
from apps.training.core.parameters import store_parameters
from apps.training.models import Attempt, MetricPoint, Task, TaskMedia
from apps.training.states import TaskState
from tests.api.conftest import Api
from tests.api.test_tasks_create import DOCUMENT
from tests.series import measured

pytestmark = [pytest.mark.database, pytest.mark.usefixtures("environments", "dataset", "model")]

BEGINS = datetime(2026, 11, 1, tzinfo=UTC)


@pytest.fixture
def make_run(colleague: Api) -> Callable[..., Task]:
    def make(**hyperparameters: Any) -> Task:
        given = {**DOCUMENT, "hyperparameters": {**DOCUMENT.get("hyperparameters", {}), **hyperparameters}}
        task = Task.objects.get(pk=colleague.post("/training-tasks", given).data["taskId"])
        Task.objects.filter(pk=task.pk).update(attempt=1, started_at=BEGINS)
        task.refresh_from_db()
        return task

    return make


def add(task: Task, name: str, values: Iterable[float | None], *, attempt: int = 1, first: int = 0) -> None:
    """One value a second."""
    MetricPoint.objects.bulk_create(
        MetricPoint(
            task=task, attempt=attempt, rank=0, step=first + step, at=BEGINS + timedelta(seconds=first + step),
            values={name: value},
        )
        for step, value in enumerate(values)
    )  # fmt: skip


def read(api: Api, *tasks: Task, **query: Any) -> Any:
    return api.get("/runs/series", task=[task.pk for task in tasks], **{"metric": "loss", **query}).data


def test_members_and_viewers_of_the_project_read_curves_and_others_find_nothing(
    owner: Api, colleague: Api, viewer: Api, stranger: Api, anonymous: Api, make_run: Callable[..., Task]
) -> None:
    task = make_run()
    add(task, "loss", [3.0, 2.0, 1.0])
    for path, query in (("/runs/series", {"metric": "loss"}), ("/runs/comparison", {})):
        for api in (owner, colleague, viewer):
            assert api.get(path, task=task.pk, **query).status == 200
        assert stranger.get(path, task=task.pk, **query).status == 404
        assert anonymous.get(path, task=task.pk, **query).status == 401
        assert colleague.get(path, task=[task.pk, "task-none"], **query).status == 404


def test_a_run_of_another_project_hides_the_whole_answer(
    colleague: Api, make_run: Callable[..., Task], other_project: Project
) -> None:
    mine, other = make_run(), make_run()
    Task.objects.filter(pk=other.pk).update(project=other_project)
    assert colleague.get("/runs/series", task=[mine.pk, other.pk], metric="loss").status == 404


def test_curves_of_runs_come_on_one_axis_with_their_exact_points(colleague: Api, make_run: Callable[..., Task]) -> None:
    first, second = make_run(), make_run()
    add(first, "loss", [3.0, 2.0, None, 1.0])
    add(second, "loss", [4.0, 3.5])
    add(second, "loss", [3.0, 2.5], attempt=2, first=1)
    found = read(colleague, first, second)
    assert (found["from"], found["to"], found["complete"], found["absent"]) == (0, 3, True, [])
    one, other = found["series"]
    assert (one["x"], one["y"], one["low"], one["notFinite"]) == ([0, 1, 3], [3.0, 2.0, 1.0], None, 1)
    assert (other["x"], other["y"], other["restarts"]) == ([0, 1, 2], [4.0, 3.0, 2.5], [1])
    assert (other["last"], other["lastStep"], other["taskId"]) == (2.5, 2, second.pk)


def test_long_curves_have_few_points_and_all_extremes(colleague: Api, make_run: Callable[..., Task]) -> None:
    task = make_run()
    add(task, "loss", [99.0 if step == 1234 else step % 10 for step in range(3000)])
    (one,) = read(colleague, task, points=20)["series"]
    assert (len(one["x"]), max(one["high"]), min(one["low"]), one["count"]) == (20, 99.0, 0, 3000)
    (part,) = read(colleague, task, points=20, **{"from": 1200, "to": 1299})["series"]
    assert (part["count"], max(part["high"]), part["x"][0] >= 1200, part["x"][-1] <= 1299) == (100, 99.0, True, True)


def test_axes_of_time_count_from_the_start_or_from_the_epoch(colleague: Api, make_run: Callable[..., Task]) -> None:
    task = make_run()
    add(task, "loss", [3.0, 2.0, 1.0])
    assert read(colleague, task, axis="relativeTime")["series"][0]["x"] == [0, 1, 2]
    assert read(colleague, task, axis="time")["series"][0]["x"] == [BEGINS.timestamp() + at for at in range(3)]
    part = read(colleague, task, axis="relativeTime", **{"from": 1, "to": 1.5})
    assert part["series"][0]["y"] == [2.0]


def test_axes_of_tokens_follow_what_the_run_logged_or_its_batch(colleague: Api, make_run: Callable[..., Task]) -> None:
    task = make_run()
    add(task, "loss", [3.0, 2.0, 1.0])
    add(task, "tokens_seen", [100, 250, 400])
    assert read(colleague, task, axis="tokens")["series"][0]["x"] == [100, 250, 400]
    part = read(colleague, task, axis="tokens", **{"from": 200, "to": 300})
    assert part["series"][0]["y"] == [2.0]
    MetricPoint.objects.filter(task=task).delete()
    metric_blocks.discard_blocks(task.pk)
    add(task, "loss", [3.0, 2.0, 1.0])
    samples = read(colleague, task, axis="samples")["series"][0]["x"]
    assert samples[1] > 0
    assert samples == [0, samples[1], 2 * samples[1]]


def test_a_run_without_a_place_on_the_axis_is_explained(colleague: Api, make_run: Callable[..., Task]) -> None:
    task, other = make_run(), make_run()
    spec = {**task.spec, "entrypoint": {"script": "train.py", "args": [], "command": []}}
    Task.objects.filter(pk=task.pk).update(spec=spec)
    add(task, "loss", [3.0])
    found = read(colleague, task, axis="tokens")
    assert (found["series"], found["from"], found["to"]) == ([], None, None)
    assert [(one["taskId"], one["code"]) for one in found["absent"]] == [(task.pk, "SERIES_WITHOUT_TOKENS")]
    found = read(colleague, task, other, metric=["loss", "acc"])
    assert [(one["taskId"], one["metric"], one["code"]) for one in found["absent"]] == [
        (task.pk, "acc", "SERIES_NOT_REPORTED"),
        (other.pk, "loss", "SERIES_NOT_REPORTED"),
        (other.pk, "acc", "SERIES_NOT_REPORTED"),
    ]
    assert task.name in found["absent"][0]["message"]
    assert read(colleague, task, axis="gpuHours")["absent"][0]["code"] == "SERIES_WITHOUT_GPUS"


def test_an_axis_of_gpu_hours_counts_what_the_run_held(colleague: Api, make_run: Callable[..., Task]) -> None:
    task = make_run()
    Task.objects.filter(pk=task.pk).update(state=TaskState.SUCCEEDED, due_at=None)
    add(task, "loss", [3.0, 2.0, 1.0])
    held = {"task": task.pk, "task_name": "t", "kind": "training", "project": task.project, "owner": "x", "zone": "z",
            "environment_name": "e", "gpus": 3600}  # fmt: skip
    Usage.objects.create(**held, since=BEGINS - timedelta(seconds=1), until=BEGINS + timedelta(seconds=10))
    assert read(colleague, task, axis="gpuHours")["series"][0]["x"] == [1, 2, 3]


def test_what_machines_used_is_on_the_same_axis(colleague: Api, make_run: Callable[..., Task]) -> None:
    task, other = make_run(), make_run()
    ends = BEGINS + timedelta(minutes=10)
    Task.objects.filter(pk=task.pk).update(state=TaskState.SUCCEEDED, due_at=None, created_at=BEGINS, ended_at=ends)
    add(task, "loss", [1.0] * 600)
    Attempt.objects.create(task=task, number=1, master_port=1, created_at=BEGINS, running_at=BEGINS, ended_at=ends)
    used = {"rank_cpu:0": [10.0] * 40, "rank_cpu:1": [30.0] * 40}
    measured(f"task:{task.pk}", BEGINS.timestamp(), used)
    for axis, least in (("relativeTime", 0), ("step", 0), ("time", BEGINS.timestamp())):
        found = read(colleague, task, other, metric=["machine.rank_cpu"], axis=axis)
        (one,) = found["series"]
        assert (set(one["y"]), one["source"], one["last"]) == ({20.0}, "machine", 20.0)
        assert least <= one["x"][0] <= one["x"][-1] <= least + 600
        assert [(each["taskId"], each["code"]) for each in found["absent"]] == [(other.pk, "SERIES_NOT_MEASURED")]


def test_bands_join_runs_of_the_same_value(colleague: Api, make_run: Callable[..., Task]) -> None:
    tasks = [make_run() for _ in range(3)]
    for task, values, rate in zip(tasks, ([1.0, 1.0], [3.0, 3.0], [9.0, 9.0]), (0.1, 0.1, 0.2), strict=True):
        add(task, "loss", values)
        store_parameters(task.pk, {"rate": rate}, "wandb")
    bands = read(colleague, *tasks, groupBy="rate", points=2)["bands"]
    assert [(one["group"], one["taskIds"], one["mean"], one["low"], one["high"], one["count"]) for one in bands] == [
        ("0.1", [tasks[0].pk, tasks[1].pk], [2.0, 2.0], [1.0, 1.0], [3.0, 3.0], [2, 2]),
        ("0.2", [tasks[2].pk], [9.0, 9.0], [9.0, 9.0], [9.0, 9.0], [1, 1]),
    ]


def test_smoothing_is_corrected_for_its_beginning(colleague: Api, make_run: Callable[..., Task]) -> None:
    task = make_run()
    add(task, "loss", [1.0, 2.0])
    assert read(colleague, task)["series"][0]["smoothed"] is None
    assert read(colleague, task, smooth=0.5)["series"][0]["smoothed"] == [1.0, pytest.approx(1.25 / 0.75, rel=1e-6)]


def test_many_curves_have_fewer_points_each(colleague: Api, make_run: Callable[..., Task]) -> None:
    task = make_run()
    names = [f"m{number}" for number in range(20)]
    assert read(colleague, task, metric=names, points=2000)["points"] == 1500


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ({"task": ["t"] * 51}, "task"), ({"task": []}, "task"), ({"metric": []}, "metric"),
        ({"metric": [f"m{number}" for number in range(21)]}, "metric"), ({"metric": "m" * 201}, "metric.0"),
        ({"axis": "epoch"}, "axis"), ({"points": 1}, "points"), ({"points": 2001}, "points"),
        ({"smooth": 1}, "smooth"), ({"smooth": "nan"}, "smooth"), ({"from": "nan"}, "from"), ({"to": "inf"}, "to"),
        ({"groupBy": "x" * 201}, "groupBy"),
    ],
)  # fmt: skip
def test_what_is_out_of_bounds_is_refused_with_its_field(colleague: Api, query: dict[str, Any], field: str) -> None:
    answer = colleague.get("/runs/series", **{"task": ["task-x"], "metric": ["loss"], **query})
    assert answer.status == 400
    assert field in answer.problems


def test_an_empty_range_and_one_that_is_turned_around_are_answered(
    colleague: Api, make_run: Callable[..., Task]
) -> None:
    task = make_run()
    add(task, "loss", [1.0, 2.0])
    for low, high in ((50, 60), (1, 0), (1, 1)):
        found = read(colleague, task, **{"from": low, "to": high})
        assert len(found["series"][0]["x"]) <= 1


def test_a_comparison_says_what_runs_have_and_in_which_parameters_they_differ(
    colleague: Api, make_run: Callable[..., Task]
) -> None:
    first, second = make_run(), make_run()
    add(first, "loss", [1.0])
    add(first, "acc", [1.0])
    add(second, "acc", [1.0])
    store_parameters(first.pk, {"zeta": 1, "same": "a"}, "wandb")
    store_parameters(second.pk, {"zeta": 2, "same": "a"}, "wandb")
    TaskMedia.objects.create(
        task=first, attempt=1, rank=0, kind="image", name="sample", step=1, path="media/1.png", source="wandb", at=now()
    )
    found = colleague.get("/runs/comparison", task=[second.pk, first.pk]).data
    assert found["metrics"] == [{"name": "loss", "runs": 1}, {"name": "acc", "runs": 2}]
    assert found["parameters"][0] == {"name": "zeta", "differs": True}
    assert {"name": "same", "differs": False} in found["parameters"]
    assert [(run["taskId"], run["parameters"]["zeta"]) for run in found["runs"]] == [(second.pk, "2"), (first.pk, "1")]
    assert found["media"] == [{"kind": "image", "name": "sample", "runs": 1}]
