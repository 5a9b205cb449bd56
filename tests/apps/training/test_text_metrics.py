"""Curves from lines for people: stored with their pattern, renamed and switched off by users, kept over restarts."""

import pytest

from apps.accounts.models import User
from apps.common.clock import now
from apps.training.logs.ingest import LogReader, drain_logs
from apps.training.models import DiagnosisRules, LogPattern, MetricPoint, Task
from apps.training.presenters.selectors import list_metrics, read_points
from apps.training.services import log_patterns
from tests.apps.attempts import begin_attempt, write

pytestmark = [pytest.mark.database, pytest.mark.django_db(transaction=True)]


def values(task: Task, attempt: int = 1, rank: int = 0) -> list[tuple[int, dict[str, float | None]]]:
    """The points as the API shows them, by step."""
    found = list_metrics(task.pk, {"after": 0, "attempt": attempt, "rank": rank, "limit": 1000})["items"]
    return sorted(((one["step"], one["values"]) for one in found), key=lambda point: point[0])


def lines(first: int, last: int, manner: str = "iter {0}: loss {1}, time 12.5ms") -> str:
    return "".join(manner.format(step, step / 2) + "\n" for step in range(first, last + 1))


def owner(task: Task) -> User:
    return task.owner


def test_lines_become_points_once_they_repeat_and_the_first_ones_too(task: Task) -> None:
    reading = LogReader(task, 1)
    write(task, "loading\n" + lines(1, 2))
    reading.read()
    assert values(task) == []
    write(task, lines(3, 4))
    reading.read()
    assert values(task) == [(step, {"loss": step / 2, "time": 12.5}) for step in (1, 2, 3, 4)]
    assert set(MetricPoint.objects.values_list("source", flat=True)) == {"text"}
    (pattern,) = LogPattern.objects.filter(task=task)
    assert (pattern.line, pattern.example) == (
        "iter {iter}: loss {loss}, time {time}ms",
        "iter 3: loss 1.5, time 12.5ms",
    )
    assert pattern.fields == {"loss": {"name": "loss", "unit": ""}, "time": {"name": "time", "unit": "ms"}}


def test_a_reader_that_begins_anew_finds_the_same(task: Task) -> None:
    for step in range(1, 7):
        write(task, lines(step, step))
        LogReader(task, 1).read()
    assert [step for step, _ in values(task)] == [1, 2, 3, 4, 5, 6]


def test_lines_that_say_of_how_many_steps_are_progress(task: Task) -> None:
    write(task, lines(1, 4, "Epoch 1/4: 50%|#| {0}/10 [00:05<01:30, 1.0it/s, loss={1}]"))
    LogReader(task, 1).read()
    task.refresh_from_db()
    assert (task.progress["step"], task.progress["total"], task.progress["loss"]) == (3, 40, 1.5)


def test_the_lowest_rank_that_prints_tells_the_progress(task: Task) -> None:
    reading = LogReader(task, 1)
    write(task, lines(1, 3, "step {0}/10: loss {1}"), rank=2)
    reading.read()
    write(task, lines(4, 4, "step {0}/10: loss {1}"), rank=2)
    reading.read()
    task.refresh_from_db()
    assert (task.progress["step"], task.progress["total"]) == (4, 10)


def test_lines_that_the_project_declares_are_points_at_once(task: Task) -> None:
    text = '[[metric]]\nline = "round {step} of {total}: got {score} in {}s"\n'
    DiagnosisRules.objects.create(project=task.project, text=text, updated_at=now(), updated_by=task.owner)
    write(task, "round 7 of 20: got 0.25 in 3s\nround 8 of 20: nothing\n")
    LogReader(task, 1).read()
    assert values(task) == [(7, {"score": 0.25})]
    task.refresh_from_db()
    assert (task.progress["step"], task.progress["total"]) == (7, 20)
    assert LogPattern.objects.get().line == "round {step} of {total}: got {score} in {}s"


def test_the_next_attempt_knows_the_patterns(task: Task) -> None:
    write(task, lines(1, 3))
    drain_logs(task.pk, 1)
    begin_attempt(task, 2)
    write(task, lines(3, 3), attempt=2)
    LogReader(task, 2).read()
    assert values(task, attempt=2) == [(3, {"loss": 1.5, "time": 12.5})]


def test_a_field_is_renamed_and_left_out_in_all_points(task: Task) -> None:
    reading = LogReader(task, 1)
    write(task, lines(1, 3))
    reading.read()
    (pattern,) = log_patterns.list_patterns(owner(task), task.pk)
    log_patterns.change_pattern(owner(task), task.pk, pattern["key"], {"fields": {"loss": "train_loss", "time": ""}})
    assert values(task) == [(step, {"train_loss": step / 2}) for step in (1, 2, 3)]
    write(task, lines(4, 4))
    reading.read()
    assert values(task)[-1] == (4, {"train_loss": 2.0})
    (pattern,) = log_patterns.list_patterns(owner(task), task.pk)
    assert pattern["fields"] == [
        {"name": "loss", "shownAs": "train_loss", "unit": ""},
        {"name": "time", "shownAs": "", "unit": "ms"},
    ]
    log_patterns.change_pattern(owner(task), task.pk, pattern["key"], {"fields": {"loss": "loss", "time": "ms"}})
    assert values(task)[0] == (1, {"loss": 0.5, "ms": 12.5})


def test_a_pattern_that_is_switched_off_shows_no_points_until_it_is_on_again(task: Task) -> None:
    reading = LogReader(task, 1)
    write(task, lines(1, 3) + '{"step": 9, "other": 1}\n')
    reading.read()
    (pattern,) = log_patterns.list_patterns(owner(task), task.pk)
    log_patterns.change_pattern(owner(task), task.pk, pattern["key"], {"enabled": False})
    write(task, lines(4, 5))
    reading.read()
    assert values(task) == [(9, {"other": 1})]
    newest = MetricPoint.objects.latest("pk").pk
    page = read_points(task.pk, {"after": newest - 1, "limit": 1})
    assert (page.points, page.last, page.more) == ([], newest, False), "a stream goes on behind what is not shown"
    log_patterns.change_pattern(owner(task), task.pk, pattern["key"], {"enabled": True})
    write(task, lines(6, 6))
    reading.read()
    assert [step for step, _ in values(task)] == [1, 2, 3, 4, 5, 6, 9], "those that came meanwhile, too"
