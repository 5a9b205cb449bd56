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

UNLIMITED = 10_000  # columns: a pipe has no width, and nothing may be cut off in it

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

_CONTROLS = [*range(0x20), *range(0x7F, 0xA0)]  # C0, delete and C1: what a terminal obeys instead of showing it
_SHOWN = {code: chr(code).encode("unicode_escape").decode() for code in _CONTROLS if chr(code) not in "\n\t"}
_IN_JSON = {
    code: f"\\u{code:04x}"
    for code in (
        *range(0x7F, 0xA0),
        *range(0xD800, 0xE000),
        *(code for code in range(0x10000) if BIDI_PATTERN.match(chr(code))),
    )
}
r"""Characters that JSON leaves as they are and a terminal would obey, as \u escapes; a JSON reader gets the same text.
"""


def visible(text: str) -> str:
    r"""Return the text with control and bidirectional characters escaped (`\x1b[2J`), so that text from a rank or
    another user cannot move the cursor, set the title, hide lines or reorder them."""
    return escape_bidi(text).translate(_SHOWN)


def console(*, err: bool = False) -> Console:
    """Return a rich console for standard output or standard error."""
    stream = sys.stderr if err else sys.stdout
    width = None if stream.isatty() else UNLIMITED
    return Console(file=stream, width=width, highlight=False, markup=False, emoji=False)


def show(data: Any, form: str, render: Callable[[], Iterable[RenderableType]]) -> None:
    """Print `data` as json or yaml, or what `render` yields."""
    if form == "json":
        click.echo(as_json(data, indent=2))
    elif form == "yaml":
        click.echo(as_yaml(data), nl=False)
    else:
        out = console()
        for part in render():
            _print(out, part)


def _print(out: Console, part: RenderableType) -> None:
    if out.is_terminal:
        out.print(part)
        return
    with out.capture() as capture:
        out.print(part)
    for line in capture.get().splitlines():  # a table fills its last column with spaces
        click.echo(line.rstrip())


def as_json(data: Any, indent: int | None = None) -> str:
    return json.dumps(data, ensure_ascii=False, indent=indent).translate(_IN_JSON)


def as_yaml(data: Any) -> str:
    import yaml

    seen = not BIDI_PATTERN.search(json.dumps(data, ensure_ascii=False))
    return yaml.safe_dump(data, allow_unicode=seen, sort_keys=False, width=120)


def table(headers: Sequence[str], rows: Iterable[Sequence[Cell]], *, title: str = "") -> Table:
    """Return a table. Columns in which every cell is a number are right-aligned; ids are never cut."""
    body = [list(row) for row in rows]
    made = Table(title=title or None, title_justify="left", title_style="bold", box=None, pad_edge=False)
    for number, header in enumerate(headers):
        numeric = bool(body) and all(row[number] is None or isinstance(row[number], (int, float)) for row in body)
        made.add_column(header, justify="right" if numeric else "left", overflow="fold", header_style="dim")
    for row in body:
        made.add_row(*(cell if isinstance(cell, Text) else Text(plain(cell)) for cell in row))
    return made


def pairs(rows: Iterable[tuple[str, Cell]]) -> Table:
    """Return a table of names and values, one pair a line; pairs without a value are left out."""
    made = Table(box=None, show_header=False, pad_edge=False)
    made.add_column(style="dim", no_wrap=True)
    made.add_column(overflow="fold")
    for name, value in rows:
        if value not in (None, ""):
            made.add_row(name, value if isinstance(value, Text) else Text(plain(value)))
    return made


def plain(value: Cell) -> str:
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
    return visible(str(value))


def line(text: str, style: str = "") -> Text:
    return Text(visible(text), style)


def status(value: str) -> Text:
    return line(value, STATUS_STYLES.get(value, ""))


def heading(text: str) -> Text:
    return line(f"\n{text}", "bold")


def say(text: str) -> None:
    """Print a remark on standard error."""
    click.echo(visible(text), err=True)


def warn(items: Iterable[Any]) -> None:
    """Print warnings of the API: code, message and hint."""
    for item in items:
        click.echo(click.style(_("WARNING"), fg="yellow") + f" {item['code']}: {visible(item['message'])}", err=True)
        if item.get("hint"):
            say(f"  → {item['hint']}")


def fault(text: str) -> None:
    """Print an error on standard error."""
    click.echo(click.style(_("ERROR"), fg="red") + f": {visible(text)}", err=True)


def problems(items: Sequence[Problem]) -> None:
    """Print problems, one a line, with their fields aligned and the hint below."""
    width = max((cell_len(item.field) for item in items), default=0)
    for item in items:
        field = item.field + " " * (width - cell_len(item.field))
        say(f"  {field}  {item.code}: {item.message}")
        if item.hint:
            say(f"  {' ' * width}  → {item.hint}")
