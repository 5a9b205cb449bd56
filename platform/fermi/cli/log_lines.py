"""Output of log lines as they arrive. In a terminal, incomplete lines (progress bars) stay at the bottom."""

import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import click
from rich.cells import set_cell_size

from fermi.characters import escape_bidi
from fermi.cli import output
from fermi.cli.options import Session
from fermi.client.logs import LogLine
from fermi.terminal_codes import keep_colours, remove_codes

LEVEL_COLOURS = {"debug": None, "info": None, "warning": "yellow", "error": "red"}


class LogPrinter:
    """Prints log lines one below the other. `marked`: with their ranks."""

    def __init__(self, session: Session, raw: bool, marked: bool) -> None:
        self._form, self._raw, self._marked = session.form, raw, marked

    def print_log_line(self, line: LogLine) -> None:
        """Print one line."""
        if line.open and not line.text:  # a bar that was taken away
            return
        if self._form == "table":
            for row in line.text.split("\n"):  # an open line has several: bars one below the other
                click.echo(self._mark(line) + self._render_row(row, line.level), color=self._raw or None)
            return
        known = {name: value for name, value in line._asdict().items() if value is not None and value is not False}
        if self._form == "json":
            click.echo(output.format_json(known))
        else:
            click.echo(output.format_yaml([known]), nl=False)

    def _render_row(self, text: str, level: str | None) -> str:
        """Return the text as printed, or in its own colours, which a pipe does not get, or else in its level's."""
        if self._raw:
            return text
        shown = escape_bidi(keep_colours(text))
        return shown if "\x1b" in shown else click.style(shown, fg=LEVEL_COLOURS.get(level or ""))

    def _mark(self, line: LogLine) -> str:
        return f"[{line.rank}] " if self._marked else ""


class TerminalLogPrinter(LogPrinter):
    """Prints log lines; the open line of each rank is redrawn at the bottom of the terminal until it is complete."""

    def __init__(self, session: Session, raw: bool, marked: bool) -> None:
        super().__init__(session, raw, marked)
        self._open: dict[int, list[str]] = {}
        self._height = 0

    def print_log_line(self, line: LogLine) -> None:
        self._clear()
        self._open.pop(line.rank, None)
        if not line.open:
            super().print_log_line(line)
        elif line.text:
            rows = escape_bidi(remove_codes(line.text.encode()).decode()).split("\n")
            self._open[line.rank] = [self._mark(line) + row.expandtabs() for row in rows]
        if self._open:
            self._draw()

    def finish(self) -> None:
        """Leave the newest state of each open line on the terminal."""
        if self._height:
            click.echo()

    def _draw(self) -> None:
        """Draw the open lines. Wider ones are cut off: a wrapped line could not be erased."""
        size = shutil.get_terminal_size()
        shown = [row for rank in sorted(self._open) for row in self._open[rank]][1 - size.lines :]
        self._height = len(shown)
        click.echo("\n".join(set_cell_size(text, size.columns - 1).rstrip() for text in shown), nl=False)

    def _clear(self) -> None:
        if self._height:
            up = f"\x1b[{self._height - 1}A" if self._height > 1 else ""
            click.echo(f"\r{up}\x1b[J", nl=False)
            self._height = 0


@contextmanager
def open_log_printer(session: Session, raw: bool, *, marked: bool, following: bool) -> Iterator[LogPrinter]:
    """Yield the printer that fits standard output."""
    if not (following and session.form == "table" and sys.stdout.isatty()):
        yield LogPrinter(session, raw, marked)
        return
    shown = TerminalLogPrinter(session, raw, marked)
    try:
        yield shown
    finally:
        shown.finish()
