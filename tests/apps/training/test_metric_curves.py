"""Curves read from packed copies of the points are those of the points themselves."""

import json
import math
import random
from datetime import timedelta
from typing import Any

import numpy as np
import pytest

from apps.common.clock import now
from apps.training.core import metric_blocks
from apps.training.core.metric_blocks import Points, discard_blocks, sort_points, update_blocks
from apps.training.core.metric_curves import CurveReader, Span
from apps.training.logs import ingest
from apps.training.logs.ingest import LogReader
from apps.training.models import LogPattern, MetricBlock, MetricBlockState, MetricPoint, Task
from apps.training.presenters.selectors import list_metrics
from apps.training.states import TaskState
from fermi.metrics.points import get_priority
from tests.apps.attempts import begin_attempt, write
from tests.sampling import examples

pytestmark = [pytest.mark.database, pytest.mark.django_db(transaction=True)]


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metric_blocks, "BLOCK_POINTS", 64)
    monkeypatch.setattr(metric_blocks, "CELL_POINTS", 4)
    monkeypatch.setattr("apps.training.core.metric_curves.CELL_POINTS", 4)
    monkeypatch.setattr(metric_blocks, "MIN_NEW_ROWS", 10)


def add_points(task: Task, steps, name="loss", *, attempt=1, rank=0, source="json", pattern="", value=float) -> None:
    MetricPoint.objects.bulk_create(
        MetricPoint(
            task=task, attempt=attempt, rank=rank, step=step, at=now() + timedelta(seconds=step),
            values={name: value(step)}, source=source, pattern=pattern,
        )
        for step in steps
    )  # fmt: skip


def build_expected(task: Task, name: str) -> dict[int, float]:
    """Return the line that the task's page draws (`frontend/src/pages/task/series.ts`)."""
    metrics = list_metrics(task.pk, {"after": 0, "limit": 1_000_000})["items"]
    reported = [one for one in metrics if name in one["values"]]
    attempts: dict[str, set[int]] = {}
    for one in reported:
        attempts.setdefault(one["source"], set()).add(one["attempt"])
    sources, covered = set(), set()
    for source in sorted(attempts, key=get_priority, reverse=True):
        if not attempts[source] & covered:
            sources.add(source)
            covered |= attempts[source]
    mine = [one for one in reported if one["source"] in sources]
    rank = min(one["rank"] for one in mine)
    mine = [one for one in mine if one["rank"] == rank]
    first: dict[int, int] = {}
    for one in mine:
        first[one["attempt"]] = min(one["step"], first.get(one["attempt"], one["step"]))
    limits = {
        number: min((step for later, step in first.items() if later > number), default=math.inf) for number in first
    }
    points = {one["step"]: one["values"][name] for one in mine if one["step"] < limits[one["attempt"]]}
    return {step: points[step] for step in sorted(points) if points[step] is not None}


def read_line(task: Task, name: str = "loss") -> dict[int, float]:
    (curve,) = CurveReader([task]).read([name], 1_000_000)
    assert curve.cells.counts.tolist() == [1] * len(curve.cells)
    return dict(zip(curve.cells.first_steps.tolist(), curve.cells.sums.tolist(), strict=True))


def test_a_curve_is_the_same_from_blocks_and_from_rows(task: Task) -> None:
    add_points(task, range(0, 1000, 5))
    assert read_line(task) == build_expected(task, "loss")
    assert MetricBlock.objects.filter(task=task).count() == 4, "64 points each, and one point is held"
    add_points(task, range(1000, 1020, 5))
    assert read_line(task) == build_expected(task, "loss"), "few new points are read as rows"
    assert MetricBlock.objects.filter(task=task).count() == 4


def test_steps_that_an_attempt_did_again_count_once_as_the_newest_has_them(task: Task) -> None:
    add_points(task, range(200))
    add_points(task, range(120, 300), attempt=2, value=lambda step: -step)
    add_points(task, range(250, 280), attempt=3, value=lambda step: 2 * step)
    line = read_line(task)
    assert line == build_expected(task, "loss")
    assert (line[119], line[120], line[250], max(line)) == (119, -120, 500, 279)
    (curve,) = CurveReader([task]).read(["loss"], 10)
    assert (curve.restarts, curve.last, curve.last_step) == ([120, 250], 558, 279)


def test_a_long_curve_is_read_as_cells_with_all_its_extremes(task: Task) -> None:
    add_points(task, range(2000), value=lambda step: 99.0 if step == 777 else math.sin(step))
    (curve,) = CurveReader([task]).read(["loss"], 50)
    assert len(curve.cells) < 600
    assert curve.cells.counts.sum() == 2000
    assert curve.cells.highs.max() == 99.0
    assert curve.last == math.sin(1999)


def test_a_part_of_a_curve_is_read_exactly(task: Task) -> None:
    add_points(task, range(2000))
    (curve,) = CurveReader([task]).read(["loss"], 10, {task.pk: Span(103, 1301)})
    assert (curve.cells.first_steps[0], curve.cells.last_steps[-1], curve.cells.counts.sum()) == (103, 1301, 1199)
    times = MetricPoint.objects.filter(task=task, step__in=(500, 502)).order_by("step").values_list("at", flat=True)
    low, high = (at.timestamp() for at in times)
    (curve,) = CurveReader([task]).read(["loss"], 10, {task.pk: Span(low, high, by_time=True)})
    assert 2 <= curve.cells.counts.sum() <= 4


def test_of_sources_that_differ_the_best_counts_and_of_ranks_the_lowest(task: Task) -> None:
    add_points(task, range(50), source="text", value=lambda step: 1)
    add_points(task, range(50), source="wandb", rank=1, value=lambda step: 2)
    assert set(read_line(task).values()) == {2.0}
    add_points(task, range(50), source="wandb", value=lambda step: 3)
    assert read_line(task) == build_expected(task, "loss")
    assert not MetricBlock.objects.filter(task=task, rank=1).exists()


def test_values_that_are_not_finite_are_counted_and_left_out(task: Task) -> None:
    add_points(task, range(40), value=lambda step: None if step % 10 == 9 else step)
    (curve,) = CurveReader([task]).read(["loss"], 1000)
    assert (len(curve.cells), curve.not_finite, curve.last) == (36, 4, 38.0)


def test_renamed_and_switched_off_patterns_count_when_curves_are_read(task: Task) -> None:
    add_points(task, range(30), "l", source="text", pattern="p1")
    fields = {"l": {"name": "l", "unit": ""}}
    pattern = LogPattern.objects.create(task=task, key="p1", line="l {l}", example="l 1", fields=fields)
    assert CurveReader([task]).list_names() == {task.pk: {"l"}}
    pattern.fields["l"]["name"] = "loss"
    pattern.save()
    assert read_line(task) == build_expected(task, "loss")
    assert CurveReader([task]).list_names() == {task.pk: {"loss"}}
    assert CurveReader([task]).read(["l"], 10) == []
    LogPattern.objects.filter(task=task).update(enabled=False)
    assert CurveReader([task]).list_names() == {task.pk: set()}


def test_thinned_points_leave_the_blocks_as_they_leave_the_rows(task: Task, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ingest, "DENSE_POINTS_RANK_0", 20)
    monkeypatch.setattr(ingest, "MIN_DENSE_POINTS", 5)
    reading = LogReader(task, 1)
    for begin in range(0, 400, 7):
        write(task, "".join(json.dumps({"step": begin + at, "loss": begin + at}) + "\n" for at in range(7)))
        if begin % 3 == 0:
            write(task, json.dumps({"step": begin, "val_loss": begin / 2}) + "\n")
        reading.read()
        assert read_line(task) == build_expected(task, "loss")
    assert MetricPoint.objects.filter(task=task).count() < 300
    assert MetricBlock.objects.filter(task=task).exists()
    assert read_line(task, "val_loss") == build_expected(task, "val_loss")


def test_a_series_that_another_source_reports_as_well_leaves_the_blocks(task: Task) -> None:
    reading = LogReader(task, 1)
    write(task, "".join(f"iter {step}: loss {step + 0.125}\n" for step in range(1, 41)))
    reading.read()
    add_points(task, range(41, 60), source="text", value=lambda step: step + 0.125)
    assert len(read_line(task)) >= 40
    assert MetricBlock.objects.filter(task=task, source="text").exists()
    write(task, "".join(json.dumps({"step": step, "loss": step + 0.125}) + "\n" for step in range(1, 41)))
    reading.read()
    assert not MetricBlock.objects.filter(task=task, source="text").exists()
    assert read_line(task) == build_expected(task, "loss")


def test_a_copy_that_began_before_points_changed_stores_nothing(task: Task, monkeypatch: pytest.MonkeyPatch) -> None:
    add_points(task, range(100))
    read_held = metric_blocks._read_held_rows

    def change_meanwhile(ids):
        monkeypatch.setattr(metric_blocks, "_read_held_rows", read_held)
        MetricPoint.objects.filter(task=task, step__lt=50).delete()
        discard_blocks(task.pk)
        return read_held(ids)

    monkeypatch.setattr(metric_blocks, "_read_held_rows", change_meanwhile)
    assert read_line(task) == build_expected(task, "loss")
    assert MetricBlock.objects.get(task=task).first_step == 50


def test_two_that_copy_at_the_same_time_store_each_point_once(task: Task, monkeypatch: pytest.MonkeyPatch) -> None:
    add_points(task, range(100))
    read_held = metric_blocks._read_held_rows

    def copy_meanwhile(ids):
        monkeypatch.setattr(metric_blocks, "_read_held_rows", read_held)
        update_blocks({task.pk: False}, max_rows=1000)
        return read_held(ids)

    monkeypatch.setattr(metric_blocks, "_read_held_rows", copy_meanwhile)
    assert read_line(task) == build_expected(task, "loss")
    assert sum(MetricBlock.objects.filter(task=task).values_list("count", flat=True)) == 99


def test_the_rows_of_one_request_are_bounded_and_the_next_goes_on(task: Task, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metric_blocks, "BATCH_ROWS", 50)
    monkeypatch.setattr("apps.training.core.metric_curves.MAX_NEW_ROWS", 100)
    add_points(task, range(500))
    sizes = []
    for _ in range(10):
        reader = CurveReader([task])
        (curve,) = reader.read(["loss"], 10_000)
        sizes.append(len(curve.cells))
        assert curve.is_complete == reader.is_complete
        if reader.is_complete:
            break
    assert sizes == sorted(sizes)
    assert (len(sizes) > 2, sizes[-1]) == (True, 500)


def test_reading_again_needs_as_many_statements_for_many_tasks_as_for_one(
    task: Task, django_assert_num_queries: Any
) -> None:
    tasks = [task]
    for number in range(8):
        Task.objects.filter(pk=task.pk).update(state=TaskState.SUCCEEDED, due_at=None)
        other = Task.objects.get(pk=task.pk)
        other.pk, other.idempotency_key = f"task-{number}", None
        other.save(force_insert=True)
        tasks.append(other)
    for one in tasks:
        add_points(one, range(50))
    tasks = list(Task.objects.all())
    CurveReader(tasks).read(["loss"], 100)
    for some in (tasks[:1], tasks):
        with django_assert_num_queries(6):
            assert len(CurveReader(some).read(["loss"], 100)) == len(some)


def test_a_task_that_has_ended_is_copied_whole_but_for_the_newest_of_each_kind(task: Task) -> None:
    add_points(task, range(5))
    assert len(read_line(task)) == 5
    assert not MetricBlock.objects.filter(task=task).exists()
    Task.objects.filter(pk=task.pk).update(state=TaskState.SUCCEEDED, due_at=None)
    task.refresh_from_db()
    assert len(read_line(task)) == 5
    assert MetricBlock.objects.get(task=task).count == 4
    assert len(MetricBlockState.objects.get(task=task).held) == 1


def test_random_tasks_have_the_curves_that_their_points_say(task: Task) -> None:
    for seed in range(examples(20)):
        rng = random.Random(seed)
        MetricPoint.objects.filter(task=task).delete()
        discard_blocks(task.pk)
        step = 0
        for attempt in range(1, rng.randint(2, 4)):
            step = max(0, step - rng.randint(0, 60))
            for _ in range(rng.randint(1, 4)):
                count = rng.randint(1, 90)
                source = rng.choice(["json", "text"])
                steps = range(step, step + count)
                add_points(task, steps, rng.choice(["loss", "lr"]), attempt=attempt, rank=rng.choice([0, 0, 1]),
                           source=source, value=lambda _, rng=rng: rng.choice([rng.random(), None]))  # fmt: skip
                step += rng.choice([count, count // 2])
                for name in ("loss", "lr"):
                    if MetricPoint.objects.filter(task=task, values__has_key=name).exists():
                        assert read_line(task, name) == build_expected(task, name), seed


def test_of_equal_steps_the_last_one_counts() -> None:
    steps = np.array([3, 1, 3, 2], np.int64)
    found = sort_points(Points(steps, np.arange(4.0), np.array([1.0, 2.0, 3.0, 4.0])))
    assert (found.steps.tolist(), found.values.tolist()) == ([1, 2, 3], [2.0, 4.0, 3.0])


def test_deleting_a_task_deletes_its_blocks(task: Task) -> None:
    add_points(task, range(40))
    read_line(task)
    begin_attempt(task, 2)
    task.delete()
    assert not MetricBlock.objects.exists()
    assert not MetricBlockState.objects.exists()
