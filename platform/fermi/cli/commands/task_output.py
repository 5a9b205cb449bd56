"""Commands for what a task printed and what is recorded of it: logs, metrics, events, checkpoints."""

import math
import sys
from collections.abc import Iterator
from itertools import islice, takewhile
from pathlib import Path
from typing import Any, Literal

import click
from rich.console import RenderableType

from fermi.characters import escape_name
from fermi.cli import output
from fermi.cli.follow import explain_interrupt
from fermi.cli.log_lines import LEVEL_COLOURS, LogPrinter, open_log_printer
from fermi.cli.options import Session, command
from fermi.cli.texts import _
from fermi.cli.times import format_time, parse_time_option
from fermi.schema import humanize

MAX_TRACEBACK_LINES = 60
"""Lines shown of a first error."""


class RankType(click.ParamType):
    name = "rank"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int | Literal["all"]:
        if value == "all":
            return "all"
        if not (isinstance(value, int) or value.isdecimal()):
            self.fail(_("NO_RANK", value=value), param, ctx)
        return int(value)


@command("logs", _("MORE_LOGS"))
@click.argument("task")
@click.option("-f", "--follow", is_flag=True, help=_("OPTION_WATCH_FOLLOW"))
@click.option("--rank", type=RankType(), metavar="N|all", help=_("OPTION_WATCH_RANK"))
@click.option("--attempt", type=int, help=_("OPTION_WATCH_ATTEMPT"))
@click.option("--grep", metavar="EXPR", help=_("OPTION_WATCH_GREP"))
@click.option("--fixed", is_flag=True, help=_("OPTION_WATCH_FIXED"))
@click.option("--search", metavar="TEXT", help=_("OPTION_WATCH_SEARCH"))
@click.option("--level", type=click.Choice(list(LEVEL_COLOURS)), help=_("OPTION_WATCH_LEVEL"))
@click.option("--since", metavar="TIME", help=_("OPTION_WATCH_SINCE"))
@click.option("--until", metavar="TIME", help=_("OPTION_WATCH_UNTIL"))
@click.option("--first-error", is_flag=True, help=_("OPTION_WATCH_FIRST_ERROR"))
@click.option("--raw", is_flag=True, help=_("OPTION_RAW"))
def logs(
    session: Session,
    task: str,
    follow: bool,
    rank: int | Literal["all"] | None,
    attempt: int | None,
    grep: str | None,
    fixed: bool,
    search: str | None,
    level: str | None,
    since: str | None,
    until: str | None,
    first_error: bool,
    raw: bool,
) -> None:
    if grep is not None and search is not None:
        raise click.UsageError(_("GREP_OR_SEARCH"))
    filters: dict[str, Any] = {"level": level, "since": parse_time_option(since), "until": parse_time_option(until)}
    sought = search if grep is None else grep
    if first_error:
        if follow or sought is not None or any(filters.values()):
            raise click.UsageError(_("FIRST_ERROR_ALONE"))
        _print_first_error(session, task, "all" if rank is None else rank, attempt, raw)
        return
    regex = grep is not None and not fixed
    shown = open_log_printer(session, raw, marked=rank == "all", following=follow)
    with explain_interrupt(task, following=follow), shown as lines:
        for line in session.fermi.tasks.logs(
            task, rank=rank or 0, attempt=attempt, search=sought, regex=regex, follow=follow, **filters
        ):
            lines.print_log_line(line)


def _print_first_error(session: Session, task: str, rank: int | Literal["all"], attempt: int | None, raw: bool) -> None:
    """Print the line and those that belong to it, such as a traceback."""
    answer = session.fermi.tasks.first_error(task, rank=rank, attempt=attempt)
    found = answer["found"]
    if not answer["complete"]:
        output.print_message(
            _("FIRST_ERROR_INCOMPLETE", size=humanize.format_bytes(answer["windowBytes"]), ranks=answer["ranksUnread"])
        )
    if session.form != "table":
        output.print_result(answer, session.form, lambda: ())
    elif found is None:
        output.print_message(_("NO_ERROR_SAID"))
    else:
        output.print_message(_("FIRST_ERROR_AT", rank=found["rank"], attempt=answer["attempt"], offset=found["offset"]))
        lines = session.fermi.tasks.logs(task, rank=found["rank"], attempt=answer["attempt"], begin=found["offset"])
        shown = LogPrinter(session, raw, marked=False)
        for line in islice(takewhile(lambda line: line.level == "error", lines), MAX_TRACEBACK_LINES):
            shown.print_log_line(line)


@command("metrics")
@click.argument("task")
@click.option("--names", metavar="A,B", help=_("OPTION_NAMES"))
@click.option("--attempt", type=int, help=_("OPTION_LOGS_ATTEMPT"))
@click.option("--rank", type=int, help=_("OPTION_LOGS_ATTEMPT"))
@click.option("-n", "--last", type=click.IntRange(1), help=_("OPTION_LAST"))
def metrics(session: Session, task: str, names: str | None, last: int | None, **filters: Any) -> None:
    chosen = [name.strip() for name in names.split(",")] if names else None
    points = list(session.fermi.tasks.metrics(task, names=chosen, **filters))
    points = points[-last:] if last else points
    output.print_result({"items": points}, session.form, lambda: _render_metrics(points))


def _render_metrics(points: list[Any]) -> Iterator[RenderableType]:
    names = list(dict.fromkeys(name for point in points for name in point["values"]))
    sources = {point.get("source", "json") for point in points}  # older platforms have one
    shown = ["source"] if len(sources) > 1 else []
    rows = [
        [point["step"], point["attempt"], point["rank"], *_list_values(point, names), *(point[name] for name in shown),
         format_time(point["at"])] for point in points
    ]  # fmt: skip
    yield output.make_table([_("STEP"), _("ATTEMPT"), _("RANK"), *names, *(_("SOURCE") for _name in shown),
                             _("TIME")], rows)  # fmt: skip


def _list_values(point: Any, names: list[str]) -> list[float | None]:
    """Return the values: NaN for one that was printed and is not finite, None for one that was not printed."""
    return [math.nan if value is None and name in point["values"] else value
            for name in names for value in [point["values"].get(name)]]  # fmt: skip


@command("events")
@click.argument("task")
def events(session: Session, task: str) -> None:
    items = list(session.fermi.tasks.events(task))
    output.print_result({"items": items, "total": len(items)}, session.form, lambda: _render_events(items))


def _render_events(items: list[Any]) -> Iterator[RenderableType]:
    rows = [[format_time(item["at"]), item["attempt"], item["kind"], item["code"], item["message"]] for item in items]
    yield output.make_table([_("TIME"), _("ATTEMPT"), _("KIND"), _("CODE"), _("WHAT_HAPPENED")], rows)


@command("checkpoints", _("MORE_CHECKPOINTS"))
@click.argument("task")
@click.argument("action", type=click.Choice(["list", "get"]), default="list")
@click.argument("step", type=int, required=False)
@click.option("--to", "into", metavar="FILE", help=_("OPTION_CHECKPOINTS_TO"))
def checkpoints(session: Session, task: str, action: str, step: int | None, into: str | None) -> None:
    items = list(session.fermi.tasks.checkpoints(task))
    if action == "get":
        found = next((item for item in items if step is None or item["step"] == step), None)
        if found is None:
            raise click.UsageError(_("NO_SUCH_CHECKPOINT"))
        _download_checkpoint(session, task, found["path"], into)
        return
    output.print_result({"items": items, "total": len(items)}, session.form, lambda: _render_checkpoints(items))


def _download_checkpoint(session: Session, task: str, path: str, into: str | None) -> None:
    """Download a checkpoint; a folder arrives as a tar. The file exists whole or not at all."""
    kind, pieces = session.fermi.outputs.checkpoint(task, path)
    name = path.rstrip("/").rpartition("/")[2] + (".tar" if kind.startswith("application/x-tar") else "")
    if into == "-":
        for piece in pieces:
            sys.stdout.buffer.write(piece)
        return
    place = Path(into or name)
    part = place.with_name(f"{place.name}.part")
    with part.open("wb") as file:
        for piece in pieces:
            file.write(piece)
    part.replace(place)
    output.print_message(_("FILE_WRITTEN", path=str(place)))


def _render_checkpoints(items: list[Any]) -> Iterator[RenderableType]:
    rows = [
        [
            item["step"],
            item["attempt"],
            item["valLoss"],
            item["sizeBytes"],
            format_time(item["at"]),
            escape_name(item["path"]),
        ]
        for item in items
    ]
    yield output.make_table([_("STEP"), _("ATTEMPT"), "val_loss", _("BYTES"), _("TIME"), _("PATH")], rows)
