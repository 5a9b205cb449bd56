"""Rank output into tables, exactly once: real log files, whichever database the suite runs on."""

import json
import math
import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from django.db import IntegrityError, OperationalError, connection

from apps.training.core import checkpoints, wakeups
from apps.training.logs import ingest
from apps.training.logs.ingest import LogReader
from apps.training.models import Checkpoint, Event, LogCursor, MetricPoint, Task
from apps.training.presenters import selectors
from fermi import messages
from fermi.metrics import json_lines
from tests.apps.attempts import begin_attempt, write

pytestmark = [pytest.mark.database, pytest.mark.django_db(transaction=True)]


@pytest.fixture(autouse=True)
def without_pulses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody tells where a script's trainer is, so its lines do not wait for that."""
    monkeypatch.setattr(ingest, "MAX_HOLD_SECONDS", -math.inf)


def point(step: int, **values: float) -> str:
    return json.dumps({"step": step, **(values or {"loss": 1.5})}) + "\n"


def steps(task: Task, rank: int = 0, attempt: int = 1) -> list[int]:
    found = MetricPoint.objects.filter(task=task, rank=rank, attempt=attempt).order_by("id")
    return list(found.values_list("step", flat=True))


def events(task: Task) -> list[str]:
    return list(Event.objects.filter(task=task, kind="script").order_by("id").values_list("code", flat=True))


def read_on(reading: LogReader) -> None:
    while reading.read().more:
        pass


def offset(task: Task, rank: int = 0) -> int:
    return LogCursor.objects.get(task=task, attempt=1, rank=rank).offset


@pytest.fixture
def published(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, Any]]:
    heard: list[tuple[str, Any]] = []
    monkeypatch.setattr(wakeups, "_say", lambda channel, data: heard.append((channel, data["kind"])))
    return heard


def test_points_are_stored_with_their_rank_and_time(task: Task) -> None:
    write(task, 'loading\n{"step": 1, "loss": 2.5, "lr": 0.1, "time": 1763703000.5}\n{"step": 2, "loss": NaN}\n')
    write(task, point(1, gpu=0.5), rank=2)
    news = LogReader(task, 1).read()
    assert (news.grown, news.more) == ({0, 2}, False)
    first, second = MetricPoint.objects.filter(rank=0).order_by("id")
    assert (first.step, first.values) == (1, {"loss": 2.5, "lr": 0.1})
    assert first.at == datetime(2025, 11, 21, 5, 30, 0, 500000, tzinfo=UTC)
    assert (second.step, second.values) == (2, {"loss": None})
    task.refresh_from_db()
    published = selectors.select_brief_columns(Task.objects.filter(pk=task.pk)).get()
    assert selectors.serialize_brief({**published, "may_change": True})["lossNotFinite"], (
        "and not only that there is no loss"
    )
    assert steps(task, rank=2) == [1]


@pytest.mark.parametrize("time", ["1e300", "-5", "0", "99999999999", '"noon"', "null"])
def test_an_invalid_time_becomes_now(task: Task, time: str) -> None:
    write(task, f'{{"step": 1, "loss": 1, "time": {time}}}\n')
    LogReader(task, 1).read()
    assert abs((MetricPoint.objects.get().at - task.created_at).total_seconds()) < 3600


def test_read_lines_are_not_read_again_by_any_reader(task: Task) -> None:
    reading = LogReader(task, 1)
    for step in range(5):
        write(task, point(step))
        assert reading.read().grown == {0}
        assert reading.read().grown == set()
    LogReader(task, 1).read()
    ingest.drain_logs(task.pk, 1)
    assert steps(task) == [0, 1, 2, 3, 4]


def test_incomplete_lines_wait_and_split_characters_are_joined(task: Task) -> None:
    reading = LogReader(task, 1)
    whole = '{"event": "checkpoint", "step": 1, "path": "模型/一.pt"}\n'.encode()
    for cut in range(len(whole)):
        assert events(task) == []
        write(task, whole[cut : cut + 1])
        assert reading.read().grown == {0}
        assert reading.read().grown == set(), "waiting for the rest is no news"
    assert Checkpoint.objects.get().path == "模型/一.pt"


def test_draining_reads_all_ranks_including_an_incomplete_last_line(task: Task) -> None:
    write(task, point(1) + point(2).strip())
    write(task, point(3).strip(), rank=2)
    LogReader(task, 1).read()
    assert (steps(task), steps(task, rank=2)) == ([1], [])
    ingest.drain_logs(task.pk, 1)
    ingest.drain_logs(task.pk, 1)
    assert (steps(task), steps(task, rank=2)) == ([1, 2], [3])
    assert offset(task) == len(point(1) + point(2)) - 1


def test_draining_an_empty_log_succeeds(task: Task) -> None:
    ingest.drain_logs(task.pk, 1)
    assert LogCursor.objects.filter(task=task).count() == 3


def test_progress_bars_end_their_lines_with_a_carriage_return(task: Task) -> None:
    write(
        task,
        "\r 10%|#  | 1/10\r            \r{'loss': 0.5, 'epoch': 0.1}\n\r 20%|## | 2/10"
        + "\r{'loss': 0.25, 'epoch': 0.2}\r\n",
    )
    LogReader(task, 1).read()
    assert [p.values["loss"] for p in MetricPoint.objects.order_by("id")] == [0.5, 0.25]


def test_points_without_a_step_are_counted_over_all_passes(task: Task) -> None:
    for number in range(4):
        write(task, f"{{'loss': 1.{number}, 'learning_rate': 5e-05, 'epoch': 0.{number}}}\n")
        LogReader(task, 1).read()
    write(task, "{'eval_loss': 0.5, 'epoch': 1.0}\n{'step': 70, 'loss': 0.1}\n{'loss': 0.2, 'epoch': 1.1}\n")
    LogReader(task, 1).read()
    assert steps(task) == [1, 2, 3, 4, 5, 70, 6]


def test_every_event_code_has_a_text(task: Task) -> None:
    for event, names in ingest.KNOWN_EVENTS.items():
        write(task, json.dumps({"event": event, **dict.fromkeys(names, 1)}) + "\n", rank=1)
        if names:
            write(task, json.dumps({"event": event}) + "\n", rank=1)
    write(task, '{"event": "coffee", "cups": [2]}\n', rank=1)
    LogReader(task, 1).read()
    known = [f"SCRIPT_{event.upper()}" for event in ingest.KNOWN_EVENTS]
    assert [code for code in events(task) if code != "SCRIPT_EVENT"] == known
    assert events(task).count("SCRIPT_EVENT") == len(known), "those that lack what their text says, and the last"
    for stored in Event.objects.filter(task=task, kind="script"):
        for lang in messages.LANGUAGES:
            assert messages.render_text(stored.code, lang, **stored.params)
    assert Event.objects.latest("id").params == {"rank": 1, "event": "coffee", "cups": [2]}


def test_a_checkpoint_saved_repeatedly_is_one_row(task: Task) -> None:
    saved = {"event": "checkpoint", "step": 100, "path": "c/100.pt", "size_bytes": 5000, "val_loss": 0.5}
    write(task, json.dumps(saved) + "\n" + json.dumps({**saved, "val_loss": 0.4}) + "\n")
    LogReader(task, 1).read()
    write(task, json.dumps({**saved, "step": 101, "size_bytes": None, "val_loss": "?"}) + "\n")
    LogReader(task, 1).read()
    found = Checkpoint.objects.get()
    assert (found.step, found.path, found.size_bytes, found.val_loss) == (101, "c/100.pt", None, None)
    assert events(task) == ["SCRIPT_CHECKPOINT"] * 3


def test_a_relative_checkpoint_path_is_in_the_working_tree(task: Task, settings: Any, tmp_path: Path) -> None:
    settings.DATA_DIR = tmp_path
    tree = tmp_path / "trees" / task.pk / "code"
    tree.mkdir(parents=True)
    for step, path in enumerate(["out/1.pt", "./out/../last.pt", "/elsewhere/3.pt"], 1):
        write(task, json.dumps({"event": "checkpoint", "step": step, "path": path}) + "\n")
    LogReader(task, 1).read()
    paths = [str(tree / "out/1.pt"), str(tree / "last.pt"), "/elsewhere/3.pt"]
    assert list(Checkpoint.objects.order_by("step").values_list("path", flat=True)) == paths
    assert all(map(checkpoints.make_claim_check(task.pk), paths))
    assert not checkpoints.make_claim_check("task-other")(paths[0])


@pytest.mark.parametrize("odd", [{"path": ""}, {"path": 7}, {"path": "x" * 501}, {"step": "7"}, {"step": -1}])
def test_an_invalid_checkpoint_is_still_an_event(task: Task, odd: dict[str, Any]) -> None:
    write(task, json.dumps({"event": "checkpoint", "step": 1, "path": "p", **odd}) + "\n")
    LogReader(task, 1).read()
    assert events(task) == ["SCRIPT_CHECKPOINT"]
    assert not Checkpoint.objects.exists()


def test_any_output_is_stored_or_skipped_and_reading_continues(task: Task) -> None:
    hostile = [
        r'{"event": "\u0000", "\ud800": "\udc00\u0000", "n": 1e999, "i": 123456789012345678901234567890}',
        r'{"step": 1, "\u0000\ud800": 1, "big": 18446744073709551616, "tiny": 5e-324, "huge": 1.7e308}',
        r'{"event": "checkpoint", "step": 9223372036854775807, "path": "\u0000", "size_bytes": 1e30, "val_loss": NaN}',
        '{"event": "' + "x" * 60_000 + '"}',
        '{"event": "' + "x" * 70_000 + '"}',
        '{"event": "x", "a": ' + "[" * 500 + "]" * 500 + "}",
        "{'epoch': " + "-" * 20_000 + "1}",
    ]
    for line in hostile:
        write(task, line + "\n")
        write(task, b"\xff\xfe{\x00\n")
    write(task, point(7))
    LogReader(task, 1).read()
    assert steps(task)[-1] == 7
    assert len(events(task)) == 3
    assert Checkpoint.objects.get().size_bytes is None


def test_progress_comes_from_rank_0_of_the_newest_attempt(task: Task) -> None:
    write(task, point(1, loss=3.0) + point(2, loss=2.5) + point(2, val_loss=9.0))
    write(task, point(77, loss=0.0), rank=1)
    LogReader(task, 1).read()
    task.refresh_from_db()
    assert task.progress == {"step": 2, "loss": 2.5}
    begin_attempt(task, 2)
    write(task, point(5, loss=2.0), attempt=2)
    ingest.drain_logs(task.pk, 2)
    write(task, point(3, loss=9.0), attempt=1)
    ingest.drain_logs(task.pk, 1)
    task.refresh_from_db()
    assert task.progress == {"step": 5, "loss": 2.0}


def test_watchers_are_woken_after_the_commit(task: Task, published: list[tuple[str, Any]]) -> None:
    write(task, "plain\n")
    LogReader(task, 1).read()
    assert published == []
    write(task, point(1) + '{"event": "started"}\n')
    LogReader(task, 1).read()
    assert sorted(published) == [("task:task-x", "event"), ("task:task-x", "metric")]


# Exactly once ---------------------------------------------------------------------------------------------------------


def test_a_reader_that_lost_a_race_drops_its_lines_and_reads_again(task: Task) -> None:
    slow, fast = LogReader(task, 1), LogReader(task, 1)
    write(task, point(1))
    slow.read()
    write(task, point(2) + '{"event": "started"}\n')
    fast.read()
    assert slow.read().more, "it has to look again"
    write(task, point(3))
    slow.read()
    fast.read()
    fast.read()
    assert steps(task) == [1, 2, 3]
    assert events(task) == ["SCRIPT_STARTED"]


def test_a_failed_transaction_reads_nothing(task: Task, monkeypatch: pytest.MonkeyPatch) -> None:
    reading = LogReader(task, 1)
    write(task, point(1))
    reading.read()
    write(task, point(2) + "{'loss': 1, 'epoch': 1}\n" + '{"event": "checkpoint", "step": 1, "path": "p"}\n')
    with monkeypatch.context() as broken:

        def fail(*args: Any, **kwargs: Any) -> None:
            raise OperationalError("disk full")

        broken.setattr(Checkpoint, "objects", SimpleNamespace(bulk_create=fail))
        with pytest.raises(OperationalError):
            reading.read()
    assert steps(task) == [1]
    assert events(task) == []
    reading.read()
    assert steps(task) == [1, 2, 1]
    assert events(task) == ["SCRIPT_CHECKPOINT"]
    assert Checkpoint.objects.count() == 1


def together(*jobs: Callable[[], None]) -> None:
    def run(job: Callable[[], None]) -> None:
        try:
            job()
        finally:
            connection.close()

    with ThreadPoolExecutor(len(jobs)) as pool:
        for future in [pool.submit(run, job) for job in jobs]:
            future.result()


def test_concurrent_readers_store_each_line_once(task: Task, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ingest, "CHUNK_BYTES", 200 << 10)
    count = 300
    done: list[bool] = []

    def train() -> None:
        for step in range(count):
            for rank in range(3):
                path = f"c/{rank}-{step}"
                write(task, f"noise\n{point(step)}", rank=rank)
                if step % 50 == 0:
                    write(task, json.dumps({"event": "checkpoint", "step": step, "path": path}) + "\n", rank=rank)
        done.append(True)

    def watch() -> None:
        reading = LogReader(task, 1)
        while not done:
            reading.read()
        ingest.drain_logs(task.pk, 1)

    together(train, watch, watch, watch)
    for rank in range(3):
        assert steps(task, rank) == list(range(count))
    assert len(events(task)) == Checkpoint.objects.count() == 3 * count / 50


# Volumes --------------------------------------------------------------------------------------------------------------


def test_plain_output_causes_no_writes(task: Task, django_assert_num_queries: Any) -> None:
    reading = LogReader(task, 1)
    reading.read()
    for _ in range(5):
        for rank in range(3):
            write(task, "epoch 1: all is well\n" * 1000, rank=rank)
        with django_assert_num_queries(0):
            assert reading.read().grown == {0, 1, 2}
    ingest.drain_logs(task.pk, 1)
    assert offset(task) == 5 * len("epoch 1: all is well\n" * 1000)


def test_a_pass_reads_a_bounded_part_of_each_log(task: Task) -> None:
    line = point(1) + "x" * 999 + "\n"
    write(task, line * 1000)
    reading = LogReader(task, 1)
    assert reading.read().more
    assert 0 < len(steps(task)) <= ingest.CHUNK_BYTES / 1000
    read_on(reading)
    assert len(steps(task)) == 1000


@pytest.mark.parametrize("length", [json_lines.MAX_LINE_BYTES, ingest.CHUNK_BYTES, 3 * ingest.CHUNK_BYTES + 5])
def test_an_over_long_line_is_skipped(task: Task, length: int) -> None:
    reading = LogReader(task, 1)
    write(task, point(1) + '{"step": 8, "loss": 1, "x": "' + "y" * length)
    read_on(reading)
    write(task, '"}\n' + point(2))
    assert reading.read().grown == {0}
    assert steps(task) == [1, 2]
    write(task, '{"step": 9, "loss": 1, "x": "' + "y" * length)
    ingest.drain_logs(task.pk, 1)
    assert steps(task) == [1, 2]


def test_the_rest_of_an_over_long_line_is_skipped_by_other_readers_too(task: Task) -> None:
    reading = LogReader(task, 1)
    write(task, point(1) + "y" * (ingest.MAX_UNSTORED_BYTES + 1))
    read_on(reading)
    write(task, point(2).strip())
    read_on(LogReader(task, 1))
    write(task, "\n" + point(3))
    read_on(LogReader(task, 1))
    assert steps(task) == [1, 3]


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ingest, "DENSE_POINTS_RANK_0", 20)
    monkeypatch.setattr(ingest, "DENSE_POINTS_OTHER_RANKS", 5)


@pytest.mark.usefixtures("few")
def test_a_flood_of_points_is_thinned_out(task: Task) -> None:
    for rank in range(2):
        write(task, "".join(point(step) for step in range(1, 2001)), rank=rank)
        write(task, point(1, val_loss=1.0), rank=rank)
    LogReader(task, 1).read()
    found = steps(task)
    assert found[:22] == [*range(1, 21), 22, 24]
    assert len(found) < 130
    assert 2000 in found
    assert len(steps(task, rank=1)) < 45
    assert MetricPoint.objects.filter(values__has_key="val_loss").count() == 2, "another kind of line counts by itself"


@pytest.mark.usefixtures("few")
@pytest.mark.parametrize("seed", range(3))
def test_thinning_does_not_depend_on_how_the_log_was_read(task: Task, seed: int) -> None:
    lot = random.Random(seed)
    text = "".join(point(n, val_loss=1.0) if n % 7 == 0 else point(n) for n in range(300)).encode()
    write(task, text, rank=1)
    LogReader(task, 1).read()
    reading, at = LogReader(task, 1), 0
    while at < len(text):
        size = lot.randrange(1, 2000)
        write(task, text[at : at + size], rank=2)
        at += size
        read_on(reading if lot.random() < 0.7 else LogReader(task, 1))
        newest = json.loads(text[:at].rpartition(b"\n")[0].rpartition(b"\n")[2] or b'{"step": null}')["step"]
        assert newest is None or newest in steps(task, rank=2)
    assert sorted(steps(task, rank=2)) == sorted(steps(task, rank=1))


def test_a_flood_of_events_ends_with_a_notice(task: Task, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ingest, "MAX_EVENTS", 3)
    for number in range(6):
        write(
            task, '{"event": "x"}\n' + json.dumps({"event": "checkpoint", "step": number, "path": str(number)}) + "\n"
        )
        LogReader(task, 1).read()
    assert len(events(task)) == 4
    assert events(task)[-1] == "SCRIPT_EVENTS_LEFT_OUT"
    assert Checkpoint.objects.count() == 6, "what training can resume from is always known"


def test_a_deleted_task_is_skipped(task: Task) -> None:
    reading = LogReader(task, 1)
    write(task, point(1))
    reading.read()
    Task.objects.filter(pk=task.pk).delete()
    write(task, point(2))
    with pytest.raises(IntegrityError):
        read_on(reading)
    assert not MetricPoint.objects.exists()
