"""What curves come to, from ranks' logs: exact, whatever was thinned out, hidden, renamed, restarted or interrupted."""

import json
import math
from typing import Any

import pytest
from django.db import connection, transaction

from apps.training.core import summaries
from apps.training.core.tracked_values import record_tracked_values
from apps.training.logs import ingest
from apps.training.logs.ingest import LogReader, drain_logs
from apps.training.models import LogCursor, LogPattern, MetricPoint, MetricSummary, Task
from apps.training.services import log_patterns
from apps.training.states import TaskKind
from fermi.metrics.summaries import Summary
from fermi.runner.record_frames import format_frame
from tests.apps.attempts import begin_attempt, write
from tests.kills import KilledError

pytestmark = [pytest.mark.database, pytest.mark.django_db(transaction=True)]


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lines wait for no report, and summaries for no interval."""
    monkeypatch.setattr(ingest, "MAX_HOLD_SECONDS", -math.inf)
    monkeypatch.setattr(ingest, "SUMMARY_SECONDS", 0.0)


def point(step: int, **values: float) -> str:
    return json.dumps({"step": step, **values}) + "\n"


def frame(step: int, values: dict[str, float]) -> bytes:
    return format_frame(json.dumps({"source": "wandb", "step": step, "values": values}).encode(), own_line=True)


def list_summaries(task: Task) -> dict[str, Summary]:
    rows = MetricSummary.objects.filter(task=task).order_by("name")
    return {name: Summary(*numbers) for name, *numbers in rows.values_list("name", *Summary._fields)}


def test_summaries_grow_with_the_log(task: Task) -> None:
    reading = LogReader(task, 1)
    write(task, point(1, loss=3.0, lr=0.1))
    reading.read()
    assert list_summaries(task) == {
        "loss": Summary(1, 3.0, 1, 3.0, 1, 3.0, 1),
        "lr": Summary(1, 0.1, 1, 0.1, 1, 0.1, 1),
    }
    write(task, point(2, loss=1.0) + point(3, loss=2.0))
    reading.read()
    assert list_summaries(task)["loss"] == Summary(3, 2.0, 3, 1.0, 2, 3.0, 1)


def test_rows_are_written_at_intervals_and_at_the_end(task: Task, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ingest, "SUMMARY_SECONDS", 3600.0)
    reading = LogReader(task, 1)
    for step in range(3):
        write(task, point(step, loss=3.0 - step))
        reading.read()
    assert list_summaries(task)["loss"].count == 1
    drain_logs(task.pk, 1)
    assert list_summaries(task)["loss"] == Summary(3, 1.0, 2, 1.0, 2, 3.0, 0)


def test_a_quiet_log_is_summarized_without_new_lines(task: Task, monkeypatch: pytest.MonkeyPatch) -> None:
    reading = LogReader(task, 1)
    monkeypatch.setattr(ingest, "SUMMARY_SECONDS", 3600.0)
    write(task, point(1, loss=3.0))
    reading.read()
    write(task, point(2, loss=1.0))
    reading.read()
    assert list_summaries(task)["loss"].count == 1
    monkeypatch.setattr(ingest, "SUMMARY_SECONDS", 0.0)
    reading.read()
    assert list_summaries(task)["loss"].count == 2


def test_values_that_were_thinned_out_count(task: Task, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ingest, "DENSE_POINTS_RANK_0", 20)
    lowest = 103
    write(task, "".join(point(step, loss=0.5 if step == lowest else 2.0) for step in range(200)))
    drain_logs(task.pk, 1)
    assert not MetricPoint.objects.filter(task=task, step=lowest).exists()
    assert list_summaries(task)["loss"] == Summary(200, 2.0, 199, 0.5, lowest, 2.0, 0)


def test_a_kill_between_points_and_rows_loses_nothing(task: Task, monkeypatch: pytest.MonkeyPatch) -> None:
    def kill(*_: Any) -> None:
        raise KilledError

    write(task, point(1, loss=3.0) + point(2, loss=1.0))
    with monkeypatch.context() as patch:
        patch.setattr(summaries, "store_summaries", kill)
        with pytest.raises(KilledError):
            LogReader(task, 1).read()
    assert MetricPoint.objects.filter(task=task).count() == 2
    assert list_summaries(task) == {}
    LogReader(task, 1).read()
    assert list_summaries(task)["loss"] == Summary(2, 1.0, 2, 1.0, 2, 3.0, 1)


def test_a_kill_before_the_commit_counts_nothing_twice(task: Task, monkeypatch: pytest.MonkeyPatch) -> None:
    def kill(*_: Any) -> None:
        raise KilledError

    for step in range(4):
        write(task, point(step, loss=3.0 - step))
        with monkeypatch.context() as patch:
            patch.setattr(LogReader, "_note", kill)
            with pytest.raises(KilledError):
                LogReader(task, 1).read()
        LogReader(task, 1).read()
    assert list_summaries(task)["loss"] == Summary(4, 0.0, 3, 0.0, 3, 3.0, 0)


def test_a_kill_at_any_statement_counts_each_value_once(task: Task) -> None:
    left = 0

    def count(execute: Any, *arguments: Any) -> Any:
        nonlocal left
        left -= 1
        if left == 0:
            raise KilledError
        return execute(*arguments)

    step, kills = 0, 0
    for at in range(1, 200):
        step, left = step + 1, at
        write(task, point(step, loss=1.0 + step))
        try:
            with connection.execute_wrapper(count):
                drain_logs(task.pk, 1)
        except KilledError:
            kills += 1
        if left > 0:  # it made fewer statements than that
            break
    assert kills > 10
    drain_logs(task.pk, 1)
    assert list_summaries(task)["loss"] == Summary(step, 1.0 + step, step, 2.0, 1, 1.0 + step, step)
    assert MetricPoint.objects.filter(task=task).count() == step


def test_a_reader_that_lags_behind_writes_no_older_values(task: Task) -> None:
    slow = LogReader(task, 1)
    write(task, point(1, loss=3.0))
    slow.read()
    write(task, point(2, loss=2.0))
    drain_logs(task.pk, 1)
    slow.store_summaries()
    assert list_summaries(task)["loss"].last == 2.0


def test_after_a_restart_the_newest_value_is_the_last_and_extremes_are_of_all_attempts(task: Task) -> None:
    write(task, point(1, loss=5.0) + point(2, loss=0.5) + point(3, loss=4.0))
    drain_logs(task.pk, 1)
    begin_attempt(task, 2)
    write(task, point(2, loss=2.0), attempt=2)
    LogReader(task, 2).read()
    assert list_summaries(task)["loss"] == Summary(4, 2.0, 2, 0.5, 2, 5.0, 1)
    drain_logs(task.pk, 2)
    summaries.rebuild_summaries(task.pk)
    assert list_summaries(task)["loss"] == Summary(4, 2.0, 2, 0.5, 2, 5.0, 1)


def test_a_series_that_another_source_reports_as_well_is_summarized_once(task: Task) -> None:
    reading = LogReader(task, 1)
    for step in range(1, 4):
        write(task, frame(step, {"train/loss": step + 0.12345}))
        write(task, point(step, loss=step + 0.12345))
        reading.read()
    (name,) = list_summaries(task)
    assert (name, list_summaries(task)[name].count) == ("train/loss", 3)
    shown = {name for values in MetricPoint.objects.values_list("values", flat=True) for name in values}
    assert shown == {"train/loss"}


def test_the_leading_rank_is_summarized(task: Task) -> None:
    reading = LogReader(task, 1)
    write(task, point(1, loss=9.0), rank=2)
    reading.read()
    assert list_summaries(task)["loss"].last == 9.0, "the only rank with points"
    write(task, point(1, loss=1.0), rank=1)
    write(task, point(2, loss=8.0, other=1.0), rank=2)
    reading.read()
    assert list_summaries(task) == {"loss": Summary(1, 1.0, 1, 1.0, 1, 1.0, 1)}
    drain_logs(task.pk, 1)
    assert list_summaries(task) == {"loss": Summary(1, 1.0, 1, 1.0, 1, 1.0, 1)}


def test_renamed_and_switched_off_patterns_change_the_summaries_at_once(task: Task) -> None:
    write(task, "".join(f"iter {step}: loss {step / 2}, time 12.5ms\n" for step in range(1, 5)))
    reading = LogReader(task, 1)
    reading.read()
    assert set(list_summaries(task)) == {"loss", "time"}
    key = LogPattern.objects.get(task=task).key
    task.refresh_from_db()
    log_patterns.change_pattern(task.owner, task.pk, key, {"fields": {"loss": "train_loss", "time": ""}})
    assert list_summaries(task) == {"train_loss": Summary(4, 2.0, 4, 0.5, 1, 2.0, 4)}
    write(task, "iter 5: loss 2.5, time 12.5ms\n")
    reading.read()
    assert list_summaries(task)["train_loss"].count == 5
    log_patterns.change_pattern(task.owner, task.pk, key, {"enabled": False})
    assert list_summaries(task) == {}
    log_patterns.change_pattern(task.owner, task.pk, key, {"enabled": True, "fields": {"loss": "loss"}})
    assert list_summaries(task) == {"loss": Summary(5, 2.5, 5, 0.5, 1, 2.5, 5)}


def test_at_most_500_names_of_a_task_are_summarized(task: Task) -> None:
    write(task, point(1, **{f"m{number}": 1.0 for number in range(600)}))
    LogReader(task, 1).read()
    assert set(list_summaries(task)) == {f"m{number}" for number in range(500)}


def test_an_attempt_of_before_there_were_summaries_begins_with_its_points(task: Task) -> None:
    write(task, point(1, loss=3.0) + point(2, loss=1.0))
    LogReader(task, 1).read()
    cursor = LogCursor.objects.get(task=task, rank=0)
    del cursor.state["summary"]
    cursor.save()
    MetricSummary.objects.all().delete()
    summaries.rebuild_summaries(task.pk)
    assert list_summaries(task)["loss"] == Summary(2, 1.0, 2, 1.0, 2, 3.0, 1)
    write(task, point(3, loss=2.0))
    LogReader(task, 1).read()
    assert list_summaries(task)["loss"] == Summary(3, 2.0, 3, 1.0, 2, 3.0, 1)


def test_a_drill_or_a_test_has_no_summaries(task: Task) -> None:
    Task.objects.filter(pk=task.pk).update(kind=TaskKind.DRILL)
    task.refresh_from_db()
    write(task, point(1, loss=3.0))
    drain_logs(task.pk, 1)
    assert list_summaries(task) == {}


def test_a_deleted_task_has_no_summaries(task: Task) -> None:
    write(task, point(1, loss=3.0))
    drain_logs(task.pk, 1)
    task.delete()
    summaries.rebuild_summaries(task.pk or "gone")
    assert not MetricSummary.objects.exists()


def test_values_that_came_by_another_way_than_a_log_are_kept_and_joined(task: Task) -> None:
    with transaction.atomic():
        record_tracked_values(
            task.pk, 1, [("loss", 9.0, 1, 1_800_000_000_000), ("f1", 0.5, 1, 1_800_000_000_000)], "mlflow"
        )
    assert list_summaries(task)["loss"] == Summary(1, 9.0, 1, 9.0, 1, 9.0, 1)
    write(task, point(2, loss=2.0))
    drain_logs(task.pk, 1)
    expected = {"f1": Summary(1, 0.5, 1, 0.5, 1, 0.5, 1), "loss": Summary(2, 9.0, 1, 2.0, 2, 9.0, 1)}
    assert list_summaries(task) == expected
    summaries.rebuild_summaries(task.pk)
    assert list_summaries(task) == expected
