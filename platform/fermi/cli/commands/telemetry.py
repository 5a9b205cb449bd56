"""What machines and ranks use, as lines of blocks with figures."""

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any

import click
from rich.console import RenderableType

from fermi.cli import output
from fermi.cli.name_resolution import Names
from fermi.cli.options import Session, command
from fermi.cli.texts import _
from fermi.cli.times import clock, moment, short
from fermi.client import NotFound
from fermi.client.client import Fermi
from fermi.client.types import TelemetrySeries
from fermi.schema import humanize
from fermi.telemetry.metrics import METRICS

WIDTH = 40
BLOCKS = "▁▂▃▄▅▆▇█"


@command("telemetry", _("MORE_TELEMETRY"))
@click.argument("what", metavar="TASK|ENVIRONMENT|WORKER")
@click.option("--metric", multiple=True, type=click.Choice(list(METRICS)), metavar="NAME", help=_("OPTION_METRIC"))
@click.option("--node", multiple=True, type=click.IntRange(0), metavar="N", help=_("OPTION_TELEMETRY_NODE"))
@click.option("--rank", multiple=True, type=click.IntRange(0), metavar="N", help=_("OPTION_TELEMETRY_RANK"))
@click.option("--since", metavar="TIME", help=_("OPTION_SINCE"))
@click.option("--to", "ends", metavar="TIME", help=_("OPTION_USAGE_TO"))
@click.option("--points", type=click.IntRange(10, 2000), default=WIDTH, show_default=True, help=_("OPTION_POINTS"))
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
    asked = {"metrics": metric, "begins": moment(since), "ends": moment(ends), "points": points}
    found = _found(session.fermi, what, asked, node, rank)
    output.show(found, session.form, lambda: _shown(found))


def _found(fermi: Fermi, what: str, asked: dict[str, Any], nodes: Sequence[int], ranks: Sequence[int]) -> Any:
    if what.startswith("task-"):
        return fermi.tasks.telemetry(what, nodes=nodes, ranks=ranks, **asked)
    if nodes or ranks:
        raise click.UsageError(_("RANKS_ARE_OF_TASKS"))
    try:
        return fermi.environments.telemetry(Names(fermi).environments([what])[0], **asked)
    except NotFound:
        return fermi.workers.telemetry(what, **asked)


def _shown(found: Any) -> Iterator[RenderableType]:
    if not found["series"]:
        yield output.line(_("NOTHING_MEASURED"))
        return
    step = short(found["stepSeconds"])
    yield output.line(_("TELEMETRY_SPAN", begins=clock(found["from"]), ends=clock(found["to"]), step=step))
    if found["emulated"]:
        yield output.line(_("TELEMETRY_EMULATED"))
    for metric, several in groupby(found["series"], key=lambda one: one["metric"]):
        yield output.heading(metric)
        headers = [_("NODE"), _("RANK"), _("OF_WHICH"), "", _("NEWEST"), _("MEAN"), _("LARGEST")]
        yield output.table(headers, map(_row, several))


def _row(one: TelemetrySeries) -> list[output.Cell]:
    known = [value for value in one["values"] if value is not None]
    most = [value for value in one["most"] or one["values"] if value is not None]
    unit, ends = one["unit"], one["values"][-1]
    newest = ends if ends is not None or len(one["values"]) < 2 else one["values"][-2]  # the last step has just begun
    return [
        one["node"], one["rank"], one["index"] or None, sparkline(one["values"], _top(one)), _figure(newest, unit),
        _figure(sum(known) / len(known) if known else None, unit), _figure(max(most, default=None), unit),
    ]  # fmt: skip


def _top(one: TelemetrySeries) -> float:
    """A share is drawn of the whole, all else of the largest."""
    largest = max((value for value in one["values"] if value is not None), default=0.0)
    return max(largest, 100.0) if one["unit"] == "%" else largest


def sparkline(values: Sequence[float | None], top: float) -> str:
    """A block for each, from nothing to `top`; a dot where nothing is known."""
    last = len(BLOCKS) - 1
    return "".join(
        "·" if value is None else BLOCKS[min(last, max(0, round(last * value / top)))] if top > 0 else BLOCKS[0]
        for value in values
    )


def _figure(value: float | None, unit: str) -> str | None:
    if value is None:
        return None
    if unit.startswith("B"):
        return humanize.format_bytes(max(0, round(value))) + unit[1:]
    return f"{value:.4g} {unit}".rstrip()
