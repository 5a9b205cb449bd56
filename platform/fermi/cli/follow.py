"""Following a task to its end: a progress bar in a terminal, lines elsewhere, silent with --wait alone."""

import math
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

from fermi.cli import output
from fermi.cli.error_handler import EXIT_TRAINING_FAILED
from fermi.cli.options import Session
from fermi.cli.task_detail import get_loss, render_task
from fermi.cli.texts import _
from fermi.cli.times import format_time_left
from fermi.client import FermiError
from fermi.client.types import TaskDetail

LINE_INTERVAL_SECONDS = 2.0  # progress lines, where they cannot be overwritten


@contextmanager
def explain_interrupt(task_id: str, *, following: bool = True) -> Iterator[None]:
    """On Ctrl-C within the context, print that the task continues, how to follow it again and how to stop it; then
    raise KeyboardInterrupt. Without `following`, print nothing."""
    try:
        yield
    except KeyboardInterrupt:
        if following:
            output.print_message("")
            output.print_message(_("TASK_GOES_ON", id=task_id))
        raise


def follow_to_end(session: Session, task_id: str, *, live: bool) -> int:
    """Wait for the task's end and print it as the command's result. Return 0 where it succeeded, else 1."""
    with explain_interrupt(task_id):
        if live:
            _follow(session, task_id)
        task = session.fermi.tasks.wait(task_id)
    output.print_result(task, session.form, lambda: render_task(task))
    return 0 if task["status"] == "succeeded" else EXIT_TRAINING_FAILED


@dataclass
class TaskProgress:
    """What the stream has reported so far. `restarts`: attempts after the first; `ends`: when the end is expected."""

    status: str
    step: int | None
    total: int | None
    loss: float | None
    speed: float | None = None
    restarts: int = 0
    ends: str | None = None

    @classmethod
    def from_task(cls, task: TaskDetail) -> "TaskProgress":
        """Return the progress of a task."""
        restarts = max(task["attempt"] - 1, 0)
        return cls(
            task["status"], task["step"], task["totalSteps"], get_loss(task), None, restarts, task.get("estimatedEndAt")
        )

    def hear(self, kind: str, data: Any) -> None:
        """Update it by an event of the stream."""
        if kind == "status":
            self.status, self.step, self.total = data["status"], data["step"], data["totalSteps"]
            self.loss = get_loss(data)
            self.restarts, self.ends = max(data["attempt"] - 1, 0), data.get("estimatedEndAt")
        elif kind == "metric":
            speeds = [point["values"]["tokens_per_s"] for point in data["items"] if "tokens_per_s" in point["values"]]
            self.speed = next(filter(None, reversed(speeds)), self.speed)

    def __str__(self) -> str:
        parts = [self.status]
        if self.step is not None:
            parts.append(f"{self.step}/{self.total or '?'}")
        if left := format_time_left(self.ends):
            parts.append(_("ABOUT_TIME_LEFT", time=left))
        if self.loss is not None:
            parts.append("loss NaN" if math.isnan(self.loss) else f"loss {self.loss:.4f}")
        if self.speed is not None:
            parts.append(f"{self.speed:,.0f} tokens/s")
        if self.restarts:
            parts.append(_("RESTARTS_COUNTED", n=self.restarts))
        return "  ".join(parts)


class ProgressDisplay(Protocol):
    """Shows progress and events while a task is followed."""

    def update(self, progress: TaskProgress, kind: str) -> None: ...

    def print_note(self, text: str) -> None: ...


def _follow(session: Session, task_id: str) -> None:
    task = session.fermi.tasks.get(task_id)
    progress = TaskProgress.from_task(task)
    with _open_display(task["taskName"]) as display:
        display.update(progress, "status")

        def on_break(error: FermiError) -> None:
            display.print_note(_("CONNECTION_BROKE_OFF", why=error.message))

        for event in session.fermi.tasks.stream(task_id, on_break=on_break):
            progress.hear(event.kind, event.data)
            if event.kind == "event":
                display.print_note(event.data["message"])
            else:
                display.update(progress, event.kind)


@contextmanager
def _open_display(name: str) -> Iterator[ProgressDisplay]:
    if sys.stderr.isatty():
        with _open_progress_bar(name) as display:
            yield display
    else:
        yield ProgressLines()


class ProgressLines:
    """Prints a line for each change of status and each event, and every LINE_INTERVAL_SECONDS one for the numbers."""

    def __init__(self) -> None:
        self._last = ""
        self._status = ""
        self._next = 0.0

    def update(self, progress: TaskProgress, kind: str) -> None:
        now, line = time.monotonic(), str(progress)
        if line == self._last or (progress.status == self._status and kind != "end" and now < self._next):
            return
        self._last, self._status, self._next = line, progress.status, now + LINE_INTERVAL_SECONDS
        output.print_message(line)

    def print_note(self, text: str) -> None:
        output.print_message(f"- {text}")


@contextmanager
def _open_progress_bar(name: str) -> Iterator[ProgressDisplay]:
    from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bars

    columns = (
        TextColumn("{task.fields[name]}", markup=False),
        BarColumn(),
        TextColumn("{task.fields[numbers]}", markup=False),
        TimeElapsedColumn(),
    )
    with Bars(*columns, console=output.make_console(err=True)) as bars:
        bar = bars.add_task("", total=None, name=output.escape_controls(name), numbers="")

        class OnTerminal:
            def update(self, progress: TaskProgress, kind: str) -> None:
                bars.update(bar, total=progress.total, completed=progress.step or 0, numbers=str(progress))

            def print_note(self, text: str) -> None:
                bars.console.print(output.escape_controls(text))

        yield OnTerminal()
