"""Commands that show what machines and ranks use, as lines of block characters with figures."""

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any

import click
from rich.console import RenderableType

from fermi.cli import output
from fermi.cli.name_resolution import NameResolver
from fermi.cli.options import Session, command
from fermi.cli.texts import _
from fermi.cli.times import format_duration, format_time, parse_time_option
from fermi.client import NotFoundError
from fermi.client.client import Fermi
from fermi.client.types import TelemetrySeries
from fermi.schema import humanize
from fermi.telemetry.metrics import METRICS

SPARKLINE_WIDTH = 40
BLOCK_CHARACTERS = "▁▂▃▄▅▆▇█"


@command("telemetry", _("MORE_TELEMETRY"))
@click.argument("what", metavar="TASK|ENVIRONMENT|WORKER")
@click.option("--metric", multiple=True, type=click.Choice(list(METRICS)), metavar="NAME", help=_("OPTION_METRIC"))
@click.option("--node", multiple=True, type=click.IntRange(0), metavar="N", help=_("OPTION_TELEMETRY_NODE"))
@click.option("--rank", multiple=True, type=click.IntRange(0), metavar="N", help=_("OPTION_TELEMETRY_RANK"))
@click.option("--since", metavar="TIME", help=_("OPTION_SINCE"))
@click.option("--to", "ends", metavar="TIME", help=_("OPTION_USAGE_TO"))
@click.option(
    "--points", type=click.IntRange(10, 2000), default=SPARKLINE_WIDTH, show_default=True, help=_("OPTION_POINTS")
)
def telemetry(
    session: Session,
    what: str,
    metric: Sequence[str],
    node: Sequence[int],
    rank: Sequence[int],
    since: str | None,
    ends: str | None,
    points: int,
) -> None:
    asked = {"metrics": metric, "begins": parse_time_option(since), "ends": parse_time_option(ends), "points": points}
    found = _fetch_telemetry(session.fermi, what, asked, node, rank)
    output.print_result(found, session.form, lambda: _render_telemetry(found))


def _fetch_telemetry(fermi: Fermi, what: str, asked: dict[str, Any], nodes: Sequence[int], ranks: Sequence[int]) -> Any:
    if what.startswith("task-"):
        return fermi.tasks.telemetry(what, nodes=nodes, ranks=ranks, **asked)
    if nodes or ranks:
        raise click.UsageError(_("RANKS_ARE_OF_TASKS"))
    try:
        return fermi.environments.telemetry(NameResolver(fermi).environments([what])[0], **asked)
    except NotFoundError:
        return fermi.workers.telemetry(what, **asked)


def _render_telemetry(found: Any) -> Iterator[RenderableType]:
    if not found["series"]:
        yield output.make_line(_("NOTHING_MEASURED"))
        return
    step = format_duration(found["stepSeconds"])
    yield output.make_line(
        _("TELEMETRY_SPAN", begins=format_time(found["from"]), ends=format_time(found["to"]), step=step)
    )
    if found["emulated"]:
        yield output.make_line(_("TELEMETRY_EMULATED"))
    for metric, several in groupby(found["series"], key=lambda one: one["metric"]):
        yield output.make_heading(metric)
        headers = [_("NODE"), _("RANK"), _("OF_WHICH"), "", _("NEWEST"), _("MEAN"), _("LARGEST")]
        yield output.make_table(headers, map(_make_row, several))


def _make_row(one: TelemetrySeries) -> list[output.Cell]:
    known = [value for value in one["values"] if value is not None]
    most = [value for value in one["most"] or one["values"] if value is not None]
    unit, ends = one["unit"], one["values"][-1]
    newest = ends if ends is not None or len(one["values"]) < 2 else one["values"][-2]  # the last step has just begun
    return [
        one["node"], one["rank"], one["index"] or None, draw_sparkline(one["values"], _choose_top(one)),
        _format_figure(newest, unit), _format_figure(sum(known) / len(known) if known else None, unit),
    _format_figure(max(most, default=None), unit), ]  # fmt: skip


def _choose_top(one: TelemetrySeries) -> float:
    """Return the value at full height: 100 (or more) for a percentage, else the largest value."""
    largest = max((value for value in one["values"] if value is not None), default=0.0)
    return max(largest, 100.0) if one["unit"] == "%" else largest


def draw_sparkline(values: Sequence[float | None], top: float) -> str:
    """Return a block character for each value, from 0 to `top`; a dot where nothing is known."""
    last = len(BLOCK_CHARACTERS) - 1
    return "".join(
        "·"
        if value is None
        else BLOCK_CHARACTERS[min(last, max(0, round(last * value / top)))]
        if top > 0
        else BLOCK_CHARACTERS[0]
        for value in values
    )


def _format_figure(value: float | None, unit: str) -> str | None:
    if value is None:
        return None
    if unit.startswith("B"):
        return humanize.format_bytes(max(0, round(value))) + unit[1:]
    return f"{value:.4g} {unit}".rstrip()
