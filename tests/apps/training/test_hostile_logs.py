"""What a rank that forges records can do to the platform: to its own task's rows alone, and not much of that."""

import json
import math
from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from apps.training.logs import ingest
from apps.training.logs.ingest import LogReader
from apps.training.models import Checkpoint, Event, Finding, LogCursor, MetricPoint, Task, TaskMedia, TaskParameter
from fermi.runner.record_frames import format_frame
from tests.apps.attempts import write

pytestmark = pytest.mark.database

MANY = 2000


@pytest.fixture(autouse=True)
def without_pulses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody tells where a script's trainer is, so its lines do not wait for that."""
    monkeypatch.setattr(ingest, "MAX_HOLD_SECONDS", -math.inf)


def write_records(task: Task, build: Callable[[int], dict[str, Any]], count: int = MANY) -> None:
    write(task, b"".join(format_frame(json.dumps(build(number)).encode(), own_line=True) for number in range(count)))


def read(task: Task) -> int:
    """Read the whole log, and return the number of queries."""
    reader = LogReader(task, 1)
    with CaptureQueriesContext(connection) as queries:
        while reader.read().more:
            pass
    return len(queries)


def get_state(task: Task) -> dict[str, Any]:
    state: dict[str, Any] = LogCursor.objects.get(task=task, rank=0).state
    return state


@pytest.mark.parametrize(
    "build",
    [
        lambda n: {"source": "wandb", "parameters": {f"p{n}": n}},
        lambda n: {"source": f"s{n}", "parameters": {"p": n}},
        lambda n: {"source": f"s{n}", "values": {"loss": n}},
        lambda n: {"source": "runner", "prompt": {"kind": "answered"}},
        lambda n: {"source": "runner", "prompt": {"kind": ("output", "answered")[n % 2], "text": f"q{n}?"}},
        lambda n: {"source": "wandb", "step": n, "media": {"kind": "image", "name": "a", "path": f"{n}.png"}},
        lambda n: {"source": "runner", "notice": {"code": "RESUME_NOT_ON_NODE", "params": {"path": f"/{n}"}}},
    ],
)
def test_a_flood_of_records_costs_few_queries_and_little_state(
    task: Task, build: Callable[[int], dict[str, Any]]
) -> None:
    write_records(task, build)
    assert read(task) < 150
    assert len(json.dumps(get_state(task))) < 10_000
    assert TaskParameter.objects.count() <= 500
    assert Finding.objects.count() <= 1
    assert MetricPoint.objects.count() <= ingest.MAX_SOURCES


def test_the_last_value_of_a_parameter_counts(task: Task) -> None:
    write_records(task, lambda n: {"source": "wandb", "parameters": {"lr": n, f"p{n % 2}": n}}, 5)
    read(task)
    assert dict(TaskParameter.objects.values_list("name", "value")) == {"lr": "4", "p0": "4", "p1": "3"}


def test_of_a_question_the_last_word_counts(task: Task) -> None:
    write_records(
        task, lambda n: {"source": "runner", "prompt": {"kind": ("input", "answered")[n % 2], "text": "q?"}}, 3
    )
    read(task)
    assert Finding.objects.get().until is None
    write_records(task, lambda n: {"source": "runner", "prompt": {"kind": "answered"}}, 1)
    read(task)
    assert Finding.objects.get().until is not None


def test_the_platforms_own_records_are_read_however_many_sources_there_are(task: Task) -> None:
    write_records(task, lambda n: {"source": f"s{n}", "values": {"loss": n}})
    write_records(task, lambda n: {"source": "runner", "checkpoint": {"path": "/x/1.pt", "step": 7}}, 1)
    read(task)
    assert Checkpoint.objects.get().step == 7


def test_names_that_differ_by_step_keep_few_points_each_and_it_says_so(
    task: Task, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A name with the step in it is a kind of line of its own: 1024 kinds of 10,000 points each would be too many."""
    monkeypatch.setattr(ingest, "DENSE_POINTS_RANK_0", 100)
    write_records(task, lambda n: {"source": "wandb", "step": n, "values": {f"loss at {n % 200}": 1.5}}, 40_000)
    read(task)
    assert 100 * 20 <= MetricPoint.objects.count() < 200 * 100
    told = Event.objects.get(code="SCRIPT_METRICS_LEFT_OUT")
    assert (told.params["rank"], 20 < told.params["kinds"] <= 200) == (0, True)


def test_lines_of_very_many_names_are_kept_less_densely(task: Task, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ingest, "DENSE_POINTS_RANK_0", 100)
    monkeypatch.setattr(ingest, "DENSE_VALUES_ALL_KINDS", 20)
    write_records(task, lambda n: {"source": "wandb", "step": n, "values": {f"v{k}": n for k in range(100)}}, 400)
    read(task)
    assert MetricPoint.objects.count() < 100
    assert MetricPoint.objects.order_by("-step")[0].step == 399, "the newest is there"


def test_a_usual_log_is_as_dense_as_ever(task: Task) -> None:
    write_records(
        task, lambda n: {"source": ("wandb", "mlflow")[n % 2], "step": n, "values": {f"l{n % 8}": 1.0 + n}}, 4000
    )
    read(task)
    assert MetricPoint.objects.count() == 4000
    assert not Event.objects.exists()


def test_only_the_newest_found_checkpoints_are_listed(task: Task, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ingest, "MAX_FOUND_CHECKPOINTS", 50)
    monkeypatch.setattr(ingest, "MAX_EVENTS", 100)
    for _ in range(2):
        write_records(
            task,
            lambda n: {"source": "runner", "time": 1.7e9 + n, "checkpoint": {"path": f"/x/{n}.pt", "step": n}},
            200,
        )
        read(task)
    assert sorted(Checkpoint.objects.values_list("step", flat=True)) == [*range(150, 200)]
    codes = [*Event.objects.values_list("code", flat=True)]
    assert (codes.count("CHECKPOINT_FOUND"), codes.count("SCRIPT_EVENTS_LEFT_OUT")) == (100, 1)


@pytest.mark.parametrize(
    "record",
    [
        b'{"source":"wandb","step":-1,"values":{"a":1}}',
        b'{"source":"wandb","step":1180591620717411303424,"values":{"a":1}}',
        b'{"source":"wandb","step":1e400,"values":{"a":1}}',
        b'{"source":"wandb","step":NaN,"values":{"a":1}}',
        b'{"source":"wandb","time":-1e300,"values":{"a":1}}',
        b'{"source":"wandb","time":1e300,"values":{"a":1},"rank":99999999}',
        b'{"source":"wandb","values":{"a":1},"parameters":' + b"[" * 3000 + b"]}",
        b'{"source":"wandb","values":{"a":1},"media":{"kind":"image","name":"x","path":"../../etc/passwd"}}',
        b'{"source":"wandb","values":{"a":1},"media":{"kind":"image","name":"x","path":"/etc/passwd"}}',
        b'{"source":"wandb","values":{"a":1},"checkpoint":{"path":"\\u0000","step":1}}',
    ],
)
def test_malformed_parts_are_left_out_and_the_log_is_read_on(task: Task, record: bytes) -> None:
    write(task, format_frame(record, own_line=True))
    write_records(task, lambda n: {"source": "wandb", "step": 5, "values": {"b": 2}}, 1)
    read(task)
    assert MetricPoint.objects.order_by("-id")[0].values == {"b": 2}
    assert (TaskMedia.objects.count(), Checkpoint.objects.count()) == (0, 0)
    assert all(0 <= step < 2**63 for step in MetricPoint.objects.values_list("step", flat=True))


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e400", "9" * 400, "1" + "0" * 3000])
def test_numbers_that_no_database_holds_are_null(task: Task, number: str) -> None:
    write(task, format_frame(b'{"source":"wandb","step":1,"values":{"a":%b}}' % number.encode(), own_line=True))
    write(task, f'{{"step": 2, "a": {number}}}\n')
    read(task)
    assert {value for point in MetricPoint.objects.all() for value in point.values.values()} <= {None}


def test_a_frame_of_another_task_in_the_log_is_this_tasks(task: Task) -> None:
    """Frames name no task, and no other rank's points: whoever forges one writes into its own log only."""
    write_records(task, lambda n: {"source": "wandb", "step": 1, "task": "task-y", "rank": 2, "values": {"a": 1}}, 1)
    read(task)
    point = MetricPoint.objects.get()
    assert (point.task_id, point.rank) == (task.pk, 0)
