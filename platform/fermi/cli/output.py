"""Output: results on standard output (tables for people, JSON or YAML for scripts), everything else on standard
error."""

import json
import math
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import click
from rich.cells import cell_len
from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from fermi.characters import BIDI_PATTERN, escape_bidi
from fermi.cli.texts import _
from fermi.client.errors import Problem

PIPE_WIDTH = 10_000  # columns: a pipe has no width, and nothing may be cut off in it

STATUS_STYLES = {
    "running": "green",
    "ready": "green",
    "succeeded": "green",
    "creating": "cyan",
    "starting": "cyan",
    "queued": "yellow",
    "initializing": "yellow",
    "preparing": "yellow",
    "stopping": "yellow",
    "failed": "red",
    "unhealthy": "red",
    "stopped": "dim",
    "deleted": "dim",
}

Cell = str | int | float | Text | None

_CONTROL_CODES = [*range(0x20), *range(0x7F, 0xA0)]  # C0, delete and C1: what a terminal obeys instead of showing it
_ESCAPES = {code: chr(code).encode("unicode_escape").decode() for code in _CONTROL_CODES if chr(code) not in "\n\t"}
_JSON_ESCAPES = {
    code: f"\\u{code:04x}"
    for code in (
        *range(0x7F, 0xA0),
        *range(0xD800, 0xE000),
        *(code for code in range(0x10000) if BIDI_PATTERN.match(chr(code))),
    )
}
r"""Characters that JSON leaves as they are and a terminal would obey, as \u escapes; a JSON reader gets the same text.
"""


def escape_controls(text: str) -> str:
    r"""Return the text with control and bidirectional characters escaped (`\x1b[2J`), so that text from a rank or
    another user cannot move the cursor, set the title, hide lines or reorder them."""
    return escape_bidi(text).translate(_ESCAPES)


def make_console(*, err: bool = False) -> Console:
    """Return a rich console for standard output or standard error."""
    stream = sys.stderr if err else sys.stdout
    width = None if stream.isatty() else PIPE_WIDTH
    return Console(file=stream, width=width, highlight=False, markup=False, emoji=False)


def print_result(data: Any, form: str, render: Callable[[], Iterable[RenderableType]]) -> None:
    """Print `data` as json or yaml, or what `render` yields."""
    if form == "json":
        click.echo(format_json(data, indent=2))
    elif form == "yaml":
        click.echo(format_yaml(data), nl=False)
    else:
        out = make_console()
        for part in render():
            _print_part(out, part)


def _print_part(out: Console, part: RenderableType) -> None:
    if out.is_terminal:
        out.print(part)
        return
    with out.capture() as capture:
        out.print(part)
    for line in capture.get().splitlines():  # a table fills its last column with spaces
        click.echo(line.rstrip())


def format_json(data: Any, indent: int | None = None) -> str:
    return json.dumps(data, ensure_ascii=False, indent=indent).translate(_JSON_ESCAPES)


def format_yaml(data: Any) -> str:
    import yaml

    seen = not BIDI_PATTERN.search(json.dumps(data, ensure_ascii=False))
    return yaml.safe_dump(data, allow_unicode=seen, sort_keys=False, width=120)


def make_table(headers: Sequence[str], rows: Iterable[Sequence[Cell]], *, title: str = "") -> Table:
    """Return a table. Columns in which every cell is a number are right-aligned; ids are never cut."""
    body = [list(row) for row in rows]
    made = Table(title=title or None, title_justify="left", title_style="bold", box=None, pad_edge=False)
    for number, header in enumerate(headers):
        numeric = bool(body) and all(row[number] is None or isinstance(row[number], (int, float)) for row in body)
        made.add_column(header, justify="right" if numeric else "left", overflow="fold", header_style="dim")
    for row in body:
        made.add_row(*(cell if isinstance(cell, Text) else Text(format_cell(cell)) for cell in row))
    return made


def make_pairs(rows: Iterable[tuple[str, Cell]]) -> Table:
    """Return a table of names and values, one pair a line; pairs without a value are left out."""
    made = Table(box=None, show_header=False, pad_edge=False)
    made.add_column(style="dim", no_wrap=True)
    made.add_column(overflow="fold")
    for name, value in rows:
        if value not in (None, ""):
            made.add_row(name, value if isinstance(value, Text) else Text(format_cell(value)))
    return made


def format_cell(value: Cell) -> str:
    """Return a cell's text."""
    match value:
        case None:
            return "-"
        case bool():
            return _("YES") if value else _("NO")
        case float() if math.isnan(value):
            return "NaN"
        case float():
            return f"{value:.4g}" if abs(value) < 1e-3 or abs(value) >= 1e6 else f"{value:.4f}".rstrip("0").rstrip(".")
    return escape_controls(str(value))


def make_line(text: str, style: str = "") -> Text:
    return Text(escape_controls(text), style)


def format_status(value: str) -> Text:
    return make_line(value, STATUS_STYLES.get(value, ""))


def make_heading(text: str) -> Text:
    return make_line(f"\n{text}", "bold")


def print_message(text: str) -> None:
    """Print a remark on standard error."""
    click.echo(escape_controls(text), err=True)


def print_warnings(items: Iterable[Any]) -> None:
    """Print warnings of the API: code, message and hint."""
    for item in items:
        click.echo(
            click.style(_("WARNING"), fg="yellow") + f" {item['code']}: {escape_controls(item['message'])}", err=True
        )
        if item.get("hint"):
            print_message(f"  → {item['hint']}")


def print_error(text: str) -> None:
    """Print an error on standard error."""
    click.echo(click.style(_("ERROR"), fg="red") + f": {escape_controls(text)}", err=True)


def print_problems(items: Sequence[Problem]) -> None:
    """Print problems, one a line, with their fields aligned and the hint below."""
    width = max((cell_len(item.field) for item in items), default=0)
    for item in items:
        field = item.field + " " * (width - cell_len(item.field))
        print_message(f"  {field}  {item.code}: {item.message}")
        if item.hint:
            print_message(f"  {' ' * width}  → {item.hint}")
