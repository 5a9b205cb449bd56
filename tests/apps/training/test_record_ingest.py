"""Records in ranks' logs into tables, exactly once, also within a line that is not complete."""

import json
import math
import random
from typing import Any

import pytest

from apps.training.logs import ingest
from apps.training.logs.ingest import LogReader
from apps.training.models import Checkpoint, Finding, LogCursor, MetricPoint, Task, TrackerRun
from fermi.runner.record_frames import format_frame
from tests.apps.attempts import begin_attempt, write

pytestmark = [pytest.mark.database, pytest.mark.django_db(transaction=True)]


@pytest.fixture(autouse=True)
def without_pulses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody tells where a script's trainer is, so its lines do not wait for that."""
    monkeypatch.setattr(ingest, "MAX_HOLD_SECONDS", -math.inf)


def frame(step: int, *, own_line: bool = False, source: str = "wandb", **values: float) -> bytes:
    record = {"source": source, "step": step, "values": values or {"loss": 1.5}}
    return format_frame(json.dumps(record).encode(), own_line=own_line)


def list_points(rank: int = 0) -> list[tuple[str, int, dict[str, Any]]]:
    found = MetricPoint.objects.filter(rank=rank).order_by("id")
    return list(found.values_list("source", "step", "values"))


def test_a_script_that_prints_nothing_has_points(task: Task) -> None:
    reading = LogReader(task, 1)
    for step in range(3):
        write(task, frame(step, own_line=True, loss=1.0 + step))
        assert reading.read().grown == {0}
    LogReader(task, 1).read()
    assert list_points() == [("wandb", step, {"loss": 1.0 + step}) for step in range(3)]
    task.refresh_from_db()
    assert task.progress == {"step": 2, "loss": 3.0}


def test_points_arrive_within_a_line_that_is_not_complete(task: Task) -> None:
    write(task, "before\n\r 1%|#" + " " * 50)
    for step in range(3):
        write(task, frame(step, loss=1.0 + step))
        LogReader(task, 1).read()
        assert len(list_points()) == step + 1
    cursor = LogCursor.objects.get(task=task, rank=0)
    write(task, b'\n{"step": 7, "lr"' + frame(3) + b": 0.5}\n")
    LogReader(task, 1).read()
    assert list_points()[-2:] == [("wandb", 3, {"loss": 1.5}), ("json", 7, {"lr": 0.5})]
    assert "begun" in cursor.state
    cursor.refresh_from_db()
    assert "begun" not in cursor.state


def test_a_line_that_frames_cut_into_pieces_is_whole(task: Task) -> None:
    line = '{"event": "checkpoint", "step": 1, "path": "模型/一.pt"}\n'.encode()
    reading = LogReader(task, 1)
    for cut in range(len(line)):
        write(task, line[cut : cut + 1] + (frame(cut) if cut < len(line) - 1 else b""))
        (reading if cut % 2 else LogReader(task, 1)).read()
    LogReader(task, 1).read()
    assert Checkpoint.objects.get().path == "模型/一.pt"
    assert [step for _, step, _ in list_points()] == list(range(len(line) - 1))


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("chunk", [3600, 4096, ingest.CHUNK_BYTES])
def test_however_a_log_arrives_each_point_is_stored_once(
    task: Task, monkeypatch: pytest.MonkeyPatch, seed: int, chunk: int
) -> None:
    monkeypatch.setattr(ingest, "CHUNK_BYTES", chunk)
    chosen, log, expected = random.Random(seed), b"", {"json": [], "wandb": []}
    for step in range(60):
        line = json.dumps({"step": step, "lr": 1.5}).encode()
        cut = chosen.randrange(len(line) + 1)
        begin = chosen.choice(
            [b"", b"text\n", b"\r 5%|#\r 6%" + frame(step, a=1.0) + b"\r", frame(step, own_line=True)]
        )
        within = chosen.choice([b"", frame(step, b=2.0), frame(step, own_line=True, c=2.0), frame(step) * 5])
        log += begin + line[:cut] + within + line[cut:] + b"\n"
        expected["json"].append(step)
        expected["wandb"] += [step] * (begin.count(b"wandb") + within.count(b"wandb"))
    log += frame(60) * 20
    expected["wandb"] += [60] * 20
    reading = LogReader(task, 1)
    while log:
        size = chosen.choice([1, 10, 100, 1000, 5000])
        write(task, log[:size])
        log = log[size:]
        if chosen.random() < 0.3:
            reading = LogReader(task, 1)  # the process that had read died
        while reading.read().more:
            pass
    for source, steps in expected.items():
        assert [step for found, step, _ in list_points() if found == source] == steps
    ingest.drain_logs(task.pk, 1)
    assert len(list_points()) == sum(map(len, expected.values()))


def test_a_crash_after_the_store_repeats_nothing_and_one_before_it_loses_nothing(task: Task) -> None:
    write(task, b"\r 1%" + frame(1))
    first, second = LogReader(task, 1), LogReader(task, 1)
    first.read(), second.read()
    write(task, b"\r 2%" + frame(2))
    second.read()
    assert first.read().more, "the other one has stored it"
    first.read()
    assert [step for _, step, _ in list_points()] == [1, 2]


def test_what_a_trainer_logged_gives_the_steps_of_the_lines_that_it_printed(
    task: Task, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ingest, "MAX_HOLD_SECONDS", math.inf)
    reading = LogReader(task, 1)
    write(task, "{'loss': '6.297', 'lr': '0.5', 'epoch': '0.2'}\n{'loss': '6.304', 'lr': '0.4', 'epoch': '0.4'}\n")
    reading.read()
    assert list_points() == []
    for step, loss, lr in ((5, 6.29701, 0.5), (10, 6.30402, 0.4)):
        write(task, frame(step, own_line=True, source="transformers", loss=loss, lr=lr, epoch=step / 25))
    reading.read()
    LogReader(task, 1).read()
    assert {(source, step) for source, step, values in list_points() if "loss" in values} == {
        ("transformers", 5), ("transformers", 10)
    }  # fmt: skip


def test_lines_of_a_trainer_that_wait_for_a_report_keep_the_records_between_them(
    task: Task, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ingest, "MAX_HOLD_SECONDS", 1e9)
    write(task, b"\r 1%" + frame(1) + b"\r{'loss': 0.5, 'epoch': 0.1}\n" + frame(2))
    reading = LogReader(task, 1)
    for _ in range(3):
        reading.read()
        assert reading.waits
        assert list_points() == []
    monkeypatch.setattr(ingest, "MAX_HOLD_SECONDS", -math.inf)
    reading.read()
    assert [(source, step) for source, step, _ in list_points()] == [("wandb", 1), ("wandb", 2), ("text", 1)]


def test_a_line_without_end_between_frames_is_bounded(task: Task) -> None:
    reading = LogReader(task, 1)
    for step in range(40):
        write(task, b"x" * 5000 + frame(step))
        reading.read()
    assert len(json.dumps(LogCursor.objects.get(task=task, rank=0).state)) < 200_000
    write(task, b'{"step": 1, "loss": 1}\n{"step": 99, "lr": 1}\n')
    LogReader(task, 1).read()
    assert [step for source, step, _ in list_points() if source == "json"] == [99]


def test_the_same_loss_from_a_line_and_a_tracker_is_one_series(task: Task) -> None:
    for step in range(1, 7):
        write(task, frame(step, **{"train/loss": step / 3}))
        write(task, f"iter {step}: loss {step / 3:.2f}, time 12.00ms\n")
        LogReader(task, 1).read()
    found = list_points()
    assert [one for one in found if one[0] == "wandb"] == [
        ("wandb", step, {"train/loss": step / 3}) for step in range(1, 7)
    ]
    assert [one for one in found if one[0] == "text"] == [("text", step, {"time": 12.0}) for step in range(1, 7)]
    task.refresh_from_db()
    assert task.progress == {"step": 6, "loss": 2}
    losses = LogCursor.objects.get(task=task, rank=0).state["losses"]
    assert losses["train/loss"]["count"] == 6


def test_values_that_differ_stay_two_series(task: Task) -> None:
    for step in range(1, 5):
        write(task, frame(step, loss=step / 3) + f"\niter {step}: loss {step / 2:.2f}, time 12.00ms\n".encode())
    LogReader(task, 1).read()
    assert len(list_points()) == 8


def test_other_values_of_a_line_stay_when_its_loss_is_hidden(task: Task) -> None:
    for step in range(1, 4):
        write(task, f'{{"step": {step}, "loss": {step}, "tokens_per_s": 5}}\n'.encode() + frame(step, loss=float(step)))
        LogReader(task, 1).read()
    assert [values for source, _, values in list_points() if source == "json"] == [{"tokens_per_s": 5}] * 3
    assert [values for source, _, values in list_points() if source == "wandb"] == [{"loss": n} for n in (1, 2, 3)]


def test_a_checkpoint_that_was_found_is_one_of_the_task(task: Task) -> None:
    record = {"source": "runner", "checkpoint": {"path": "/x/checkpoint-5", "step": 5, "size_bytes": 7, "layout": "hf"}}
    write(task, format_frame(json.dumps(record).encode(), own_line=True))
    LogReader(task, 1).read()
    found = Checkpoint.objects.get()
    assert (found.step, found.size_bytes, found.attempt) == (5, 7, 1)


def test_the_next_attempt_decides_anew(task: Task) -> None:
    write(task, frame(1, own_line=True))
    LogReader(task, 1).read()
    begin_attempt(task, 2)
    write(task, '{"step": 5, "loss": 2}\n', attempt=2)
    LogReader(task, 2).read()
    task.refresh_from_db()
    assert task.progress == {"step": 5, "loss": 2}


def test_a_question_of_the_script_is_a_finding_until_its_output_goes_on(task: Task) -> None:
    def ask(**prompt: str) -> None:
        write(task, format_frame(json.dumps({"source": "runner", "prompt": prompt}).encode(), own_line=True))
        LogReader(task, 1).read()

    ask(kind="input", text="Password: ")
    [found] = Finding.objects.all()
    assert (found.code, found.level, found.key, found.until) == ("SCRIPT_ASKED_PASSWORD", "info", "0", None)
    assert found.evidence[0]["lines"] == ["Password:"]
    ask(kind="output", text="Password:")
    found.refresh_from_db()
    assert found.level == "warn"
    ask(kind="answered", text="Password:")
    found.refresh_from_db()
    assert found.until is not None
    ask(kind="nonsense", text="x")
    assert Finding.objects.count() == 1


def test_a_run_of_a_tracker_is_stored_once_however_often_it_is_reported(task: Task) -> None:
    for name, url in (("calm-sea", ""), ("calm-sea", "https://wandb.ai/ann/gpt/runs/a"), ("bright-sun", "")):
        run = {"id": "a", "project": "gpt", "name": name, "url": url, "folder": "wandb/run-1-a"}
        write(task, format_frame(json.dumps({"source": "wandb", "run": run}).encode(), own_line=True))
        LogReader(task, 1).read()
    write(task, format_frame(json.dumps({"source": "wandb", "run": {"id": "a/b"}}).encode(), own_line=True))
    LogReader(task, 1).read()
    row = TrackerRun.objects.get(task=task)
    assert (row.run_id, row.name, row.url) == ("a", "bright-sun", "https://wandb.ai/ann/gpt/runs/a")
    assert (row.folder, row.attempt, row.rank) == ("", 1, 0)
