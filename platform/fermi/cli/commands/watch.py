"""What a task says and what is said of it: logs, metrics, events, checkpoints."""

from collections.abc import Iterator
from typing import Any, Literal

import click
from rich.console import RenderableType

from fermi.cli import output
from fermi.cli.leaving import leaving
from fermi.cli.options import Session, command
from fermi.cli.texts import _
from fermi.cli.times import clock


class Rank(click.ParamType):
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
@click.option("--rank", type=Rank(), default="0", show_default=True, metavar="N|all")
@click.option("--attempt", type=int, help=_("OPTION_WATCH_ATTEMPT"))
@click.option("--search", help=_("OPTION_WATCH_SEARCH"))
@click.option("--raw", is_flag=True, help=_("OPTION_RAW"))
def logs(session: Session, task: str, follow: bool, rank: int | Literal["all"], raw: bool, **filters: Any) -> None:
    with leaving(task, following=follow):
        for line in session.fermi.tasks.logs(task, rank=rank, follow=follow, **filters):
            if session.form == "json":
                click.echo(output.as_json(line._asdict()))
            elif session.form == "yaml":
                click.echo(output.as_yaml([line._asdict()]), nl=False)
            else:
                text = line.text if raw else output.visible(line.text)
                click.echo(f"[{line.rank}] {text}" if rank == "all" else text, color=raw or None)


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
    output.show({"items": points}, session.form, lambda: _metrics(points))


def _metrics(points: list[Any]) -> Iterator[RenderableType]:
    names = list(dict.fromkeys(name for point in points for name in point["values"]))
    rows = [
        [point["step"], point["attempt"], point["rank"], *map(point["values"].get, names), clock(point["at"])]
        for point in points
    ]
    yield output.table([_("STEP"), _("ATTEMPT"), _("RANK"), *names, _("TIME")], rows)


@command("events")
@click.argument("task")
def events(session: Session, task: str) -> None:
    items = list(session.fermi.tasks.events(task))
    output.show({"items": items, "total": len(items)}, session.form, lambda: _events(items))


def _events(items: list[Any]) -> Iterator[RenderableType]:
    rows = [[clock(item["at"]), item["attempt"], item["kind"], item["code"], item["message"]] for item in items]
    yield output.table([_("TIME"), _("ATTEMPT"), _("KIND"), _("CODE"), _("WHAT_HAPPENED")], rows)


@command("checkpoints")
@click.argument("task")
def checkpoints(session: Session, task: str) -> None:
    items = list(session.fermi.tasks.checkpoints(task))
    output.show({"items": items, "total": len(items)}, session.form, lambda: _checkpoints(items))


def _checkpoints(items: list[Any]) -> Iterator[RenderableType]:
    rows = [
        [item["step"], item["attempt"], item["valLoss"], item["sizeBytes"], clock(item["at"]), item["path"]]
        for item in items
    ]
    yield output.table([_("STEP"), _("ATTEMPT"), "val_loss", _("BYTES"), _("TIME"), _("PATH")], rows)
