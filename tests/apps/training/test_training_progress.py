"""A task's progress: of how many steps it is and when it ends, from lines, bars, arguments, parameters and pulses."""

import json
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest

from apps.training.logs import ingest
from apps.training.logs.ingest import LogReader
from apps.training.models import Task
from apps.training.presenters import selectors
from apps.training.states import TaskState
from fermi.jobs.spec import RankProgress
from fermi.runner.record_frames import format_frame
from tests.apps.attempts import write

pytestmark = [pytest.mark.database, pytest.mark.django_db(transaction=True)]

BEGIN = 1_763_703_000.0


class Script:
    """A script that prints to the log of rank 0, whose reader reads at times that the test chooses."""

    def __init__(self, task: Task, monkeypatch: pytest.MonkeyPatch) -> None:
        self.task, self.time = task, BEGIN
        clock = SimpleNamespace(time=lambda: self.time, monotonic=lambda: self.time)
        monkeypatch.setattr(ingest, "time", clock)
        self.reader = LogReader(task, 1)

    def set_arguments(self, *words: str) -> None:
        self.task.spec = {**self.task.spec, "entrypoint": {"script": "train.py", "args": list(words)}}
        self.task.save(update_fields=["spec"])

    def print(self, text: str, after: float = 1.0) -> dict[str, Any]:
        self.time += after
        write(self.task, text)
        self.reader.read()
        return self.progress

    def record(self, **record: Any) -> dict[str, Any]:
        return self.print(format_frame(json.dumps(record).encode(), own_line=True).decode())

    def hear(self, count: int, trainer: dict[str, Any] | None = None, after: float = 1.0) -> dict[str, Any]:
        self.time += after
        self.reader.hear({0: RankProgress(0, self.time, step=count, trainer=trainer)})
        return self.progress

    @property
    def progress(self) -> dict[str, Any]:
        """The progress; `left`: in how many seconds it ends, instead of when."""
        self.task.refresh_from_db()
        found = dict(self.task.progress)
        if ends := found.pop("ends", None):
            assert ends[0] == 1
            found["left"] = ends[1] - round(self.time)
        return found


@pytest.fixture
def script(task: Task, monkeypatch: pytest.MonkeyPatch) -> Script:
    return Script(task, monkeypatch)


def bar(at: int, total: int, left: str = "07:10", name: str = "", values: str = "") -> str:
    name = f"{name}: " if name else ""
    return (
        f"{name}{at * 100 // total}%|{'█' * (at * 10 // total):<10}| {at}/{total} [01:02<{left},  8.57it/s{values}]\r"
    )


def test_a_trainer_says_of_how_many_steps_it_is_and_its_bar_how_long_it_takes(script: Script) -> None:
    script.record(source="transformers", step=500, values={"loss": 2.5})
    trainer = {"step": 508, "total": 4200, "epoch": 0.36, "every": 500}
    assert script.hear(508, trainer) == {"step": 508, "loss": 2.5, "total": 4200}
    script.print(bar(509, 4200) + bar(510, 4200) + bar(3, 13, "00:01"))
    found = script.record(source="transformers", step=510, values={"loss": 2.4})
    assert (found["step"], found["total"], found["loss"]) == (510, 4200, 2.4)
    assert found["left"] == 429, "07:10, a second ago"
    found = script.hear(520, {**trainer, "step": 520})
    assert (found["step"], found["total"]) == (520, 4200)


def test_a_bar_that_counts_to_the_steps_of_the_arguments_is_progress_without_any_values(script: Script) -> None:
    script.set_arguments("--max_train_steps", "140", "--num_train_epochs=2")
    found = script.print(bar(30, 140, "00:20") + bar(31, 140, "00:19"), after=3.0)
    assert found == {"step": 31, "counted": True, "total": 140, "left": 19}
    assert script.print(bar(32, 140, "00:18"), after=0.5)["step"] == 31, "not stored each time that it moves"
    assert script.print(bar(60, 140, "00:10"), after=3.0) == {"step": 60, "counted": True, "total": 140, "left": 10}


@pytest.mark.parametrize(
    "name", ["Downloading shards", "Map (num_proc=4)", "Evaluating", "Running tokenizer", "加载数据"]
)
def test_bars_of_other_work_are_no_progress(script: Script, name: str) -> None:
    script.set_arguments("--max_steps", "100")
    for at in range(10, 60, 10):
        assert script.print(bar(at, 100, name=name) + "\n", after=5.0) == {}


def test_a_bar_that_grows_with_the_optimizers_steps_is_progress_until_it_begins_anew(script: Script) -> None:
    for at in range(10, 100, 10):
        script.print(bar(at, 100, "00:09") + "\n")
        found = script.hear(at, after=0.0)
    assert (found["step"], found["total"]) == (90, 100)
    script.print(bar(100, 100, "00:00") + "\n")
    script.print(bar(5, 100, "00:09") + "\n", after=3.0)
    assert script.hear(105) == {"step": 105, "counted": True}, "they were the batches of an epoch"
    for at in range(10, 100, 10):
        script.print(bar(at, 100, "00:09") + "\n")
        assert "total" not in script.hear(100 + at, after=0.0)


def test_an_evaluations_bar_does_not_grow_with_the_optimizers_steps(script: Script) -> None:
    for at in range(10, 100, 10):
        script.print(bar(at, 400, "00:09") + "\n")
        found = script.hear(7, after=0.0)
    assert found == {"step": 7, "counted": True}


def test_counters_of_lines_are_of_as_many_steps_as_arguments_say_and_end_at_their_pace(script: Script) -> None:
    script.set_arguments("config/train.py", "--max_iters=200")
    for step in range(0, 40, 10):
        found = script.print(f"iter {step}: loss 2.{step}, time 100ms\n", after=5.0)
    assert found == {"step": 30, "total": 200, "loss": 2.3, "left": 85}


def test_epochs_of_the_arguments_count_where_lines_tell_the_epoch(script: Script) -> None:
    script.set_arguments("data", "-a", "resnet18", "--epochs", "90")
    text = "".join(f"Epoch: [0][{at}/100]\tTime  0.3 (0.3)\tLoss 6.9{at} (6.95)\n" for at in (0, 10, 20))
    found = script.print(text)
    assert (found["step"], found["total"]) == (20, 9000)


def test_the_first_epochs_total_does_not_stay(script: Script) -> None:
    text = "".join(f"[{at}/3] loss=2.{at}\n" for at in (1, 2, 3))
    assert script.print(text)["total"] == 3
    assert script.print("[1/3] loss=1.9\n") == {"step": 4, "loss": 1.9}


def test_parameters_that_a_script_logs_say_of_how_many_steps_it_is(script: Script) -> None:
    script.record(source="wandb", parameters={"trainer": {"max_steps": 300, "seed": 1}, "optimizer": "adamw"})
    found = script.record(source="wandb", step=10, values={"loss": 2.5})
    assert found == {"step": 10, "total": 300, "loss": 2.5}
    script.reader = LogReader(script.task, 1)
    assert script.record(source="wandb", step=20, values={"loss": 2.4})["total"] == 300, "a new reader knows it"
    assert script.record(source="wandb", step=301, values={"loss": 2.4}) == {"step": 301, "loss": 2.4}


@pytest.mark.parametrize(("state", "attempt", "shown"), [("running", 1, True), ("running", 2, False),
                                                         ("stopping", 1, False), ("succeeded", 1, False)])  # fmt: skip
def test_the_estimated_end_is_shown_of_the_running_attempt(task: Task, state: str, attempt: int, shown: bool) -> None:
    ends = round(datetime.now(UTC).timestamp()) + 600
    Task.objects.filter(pk=task.pk).update(
        progress={"step": 5, "total": 10, "ends": [1, ends]}, state=TaskState(state), attempt=attempt
    )
    row = selectors.select_brief_columns(Task.objects.filter(pk=task.pk)).get()
    found = selectors.serialize_brief({**row, "may_change": True})["estimatedEndAt"]
    assert found == (datetime.fromtimestamp(ends, UTC) if shown else None)


def test_an_end_that_has_passed_is_not_shown(task: Task) -> None:
    Task.objects.filter(pk=task.pk).update(progress={"step": 5, "ends": [1, 1_000_000]}, state=TaskState.RUNNING)
    row = selectors.select_brief_columns(Task.objects.filter(pk=task.pk)).get()
    assert selectors.serialize_brief({**row, "may_change": True})["estimatedEndAt"] is None
