"""Rank 0's report: in a terminal a progress bar below readable lines, elsewhere JSON lines."""

import argparse
import os
import sys
import time
from typing import Any

from fermi.train.common import Report

CLEAR_LINE = "\r\x1b[K"  # back to the line's beginning, all of it gone
MAX_UPDATES_PER_SECOND = 10
MAX_BAR_WIDTH = 30


def make_report(args: argparse.Namespace, rank: int) -> Report:
    return (TerminalReport if rank == 0 and sys.stdout.isatty() else Report)(args, rank)


class TerminalReport(Report):
    """Report with lines `Step 10: loss=2.31 …`, and below them `45%|████▌     | 135/300 [00:12<00:15, 10.9
    steps/s]`."""

    def __init__(self, args: argparse.Namespace, rank: int) -> None:
        self.total, self.bar, self.first, self.began, self.drawn = args.total_steps, "", 0, 0.0, 0.0
        sys.stdout.reconfigure(errors="replace")  # type: ignore[union-attr]
        super().__init__(args, rank)

    def print_line(self, line: dict[str, Any]) -> None:
        told = {name: value for name, value in line.items() if name not in ("event", "time")}
        step = f"Step {told.pop('step')}: " if "step" in told else ""
        words = [line["event"]] if "event" in line else []
        words += [
            f"{name}={value:.6g}" if isinstance(value, float) else f"{name}={value}" for name, value in told.items()
        ]
        self._draw(f"{CLEAR_LINE if self.bar else ''}{step}{' '.join(words)}\n{self.bar}")
        if line.get("event") in ("stopped", "finished"):
            self._draw("\n" if self.bar else "")
            self.bar = ""

    def progress(self, step: int) -> None:
        now = time.monotonic()
        if not self.began:
            self.first, self.began = step, now
        if step < self.total and now - self.drawn < 1 / MAX_UPDATES_PER_SECOND:
            return
        self.bar, self.drawn = draw_bar(step, self.total, step - self.first, now - self.began, count_columns()), now
        self._draw(f"{CLEAR_LINE}{self.bar}")

    def _draw(self, text: str) -> None:
        sys.stdout.write(text)
        sys.stdout.flush()


def count_columns() -> int:
    try:
        return os.get_terminal_size(sys.stdout.fileno()).columns or 80
    except (OSError, ValueError):
        return 80


def draw_bar(step: int, total: int, done: int, seconds: float, columns: int) -> str:
    """Return the progress bar, never wider than the terminal: a wrapped line could not be erased. `done` steps took
    `seconds`."""
    speed = done / seconds if seconds > 0 else 0.0
    left = format_duration((total - step) / speed) if speed else "?"
    end = f"| {step}/{total} [{format_duration(seconds)}<{left}, {speed:.1f} steps/s]"
    start = f"{step * 100 // total:3d}%|"
    width = max(0, min(MAX_BAR_WIDTH, columns - 1 - len(start) - len(end)))
    eighths = width * 8 * step // total
    full = "█" * (eighths // 8) + (" ▏▎▍▌▋▊▉"[eighths % 8] if eighths % 8 else "")
    return f"{start}{full:<{width}}{end}"[: max(columns - 1, 0)]


def format_duration(seconds: float) -> str:
    """Return a duration: `01:02`, `1:01:02`."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes:02d}:{rest:02d}"
