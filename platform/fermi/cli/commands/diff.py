"""The command that compares two runs: what differs, the likeliest cause of another result first."""

from collections.abc import Iterator
from typing import Any

import click
from rich.console import RenderableType
from rich.text import Text

from fermi.cli import output
from fermi.cli.options import Session, command
from fermi.cli.texts import _
from fermi.client.types import RunDifferences

MAX_CODE_LINES = 40
"""Of all files together, unless all are requested."""
MARKS = ((70, ("●", "red")), (40, ("●", "yellow")), (0, ("·", "dim")))
"""From a weight on."""
LINE_STYLES = {"+": "green", "-": "red", "@": "cyan"}


@command("diff", _("MORE_DIFF"))
@click.argument("left", metavar="TASK")
@click.argument("right", metavar="TASK")
@click.option("--code", "whole", is_flag=True, help=_("OPTION_DIFF_CODE"))
@click.option("--json", "as_json", is_flag=True, help=_("OPTION_JSON"))
def diff(session: Session, left: str, right: str, whole: bool, as_json: bool) -> None:
    session.form = "json" if as_json else session.form
    found = session.fermi.differences.compare(left, right)
    output.print_result(found, session.form, lambda: _render(found, None if whole else MAX_CODE_LINES))


def _render(found: RunDifferences, max_lines: int | None) -> Iterator[RenderableType]:
    for side in (found["left"], found["right"]):
        yield Text.assemble(
            (output.escape_controls(side["taskName"]), "bold"), f"  {side['taskId']}  ",
            output.format_status(side["status"]),
        )  # fmt: skip
    yield ""
    if not found["differences"]:
        yield output.make_line(_("DIFF_NONE"))
    for one in found["differences"]:
        mark, style = next(mark for weight, mark in MARKS if one["weight"] >= weight)
        yield Text.assemble((f"{mark} ", style), output.escape_controls(one["message"]))
    if found["leftOut"]:
        yield output.make_line(_("DIFF_MORE", count=found["leftOut"]), "dim")
    if found["curves"]:
        yield output.make_heading(_("DIFF_CURVES"))
        for curve in found["curves"]:
            yield output.make_line(curve["message"])
            if curve["verdict"] == "parted" and curve["hint"]:
                yield output.make_line(f"  {curve['hint']}", "dim")
    if found["files"]:
        yield output.make_heading(_("DIFF_CODE"))
        yield from _render_code(found["files"], max_lines)
    for gap in found["gaps"]:
        yield output.make_line(gap["message"], "dim")


def _render_code(files: Any, max_lines: int | None) -> Iterator[RenderableType]:
    """Yield the lines of the differences; of more than `max_lines` how many are left out."""
    lines = [line for file in files for line in _list_lines(file)]
    for line in lines[:max_lines]:
        yield output.make_line(line, LINE_STYLES.get(line[:1], ""))
    if max_lines is not None and len(lines) > max_lines:
        yield output.make_line(_("DIFF_CODE_MORE", count=len(lines) - max_lines), "dim")


def _list_lines(file: Any) -> list[str]:
    if file["diff"]:
        return str(file["diff"]).splitlines()
    return [f"{file['change']}: {output.escape_controls(file['path'])}"]
