"""Commands for what tasks used and what it cost, and for the price list."""

from collections.abc import Iterator, Sequence
from datetime import UTC
from typing import Any

import click
from rich.console import RenderableType

from fermi.cli import output
from fermi.cli.name_resolution import NameResolver
from fermi.cli.options import Session, command
from fermi.cli.texts import _
from fermi.cli.times import format_duration, format_gpu_hours, format_time, parse_moment
from fermi.client.types import ModelFlops, PriceList, PriceRequest, TaskUsage, UsageReport

GROUPINGS = ["task", "user", "project", "environment", "month"]
ANY_VALUE = "*"


@command("usage", _("MORE_USAGE"))
@click.argument("task", required=False)
@click.option("--by", type=click.Choice(GROUPINGS), default="project", show_default=True, help=_("OPTION_USAGE_BY"))
@click.option("--from", "begins", metavar="TIME", help=_("OPTION_USAGE_FROM"))
@click.option("--to", "ends", metavar="TIME", help=_("OPTION_USAGE_TO"))
@click.option("--project", help=_("OPTION_USAGE_PROJECT"))
@click.option("--csv", is_flag=True, help=_("OPTION_USAGE_CSV"))
def usage(
    session: Session, task: str | None, by: Any, begins: str | None, ends: str | None, project: str | None, csv: bool
) -> None:
    fermi, begins, ends = session.fermi, _parse_moment(begins), _parse_moment(ends)
    if task:
        one = fermi.tasks.usage(task)
        output.print_result(one, session.form, lambda: _render_task_usage(one))
        return
    where = NameResolver(fermi).project(project) if project else None
    if csv:
        click.echo(fermi.costs.usage_csv(by, project=where, begins=begins, ends=ends), nl=False)
        return
    found = fermi.costs.usage(by, project=where, begins=begins, ends=ends)
    output.print_result(found, session.form, lambda: _render_usage(found))


@command("prices", _("MORE_PRICES"))
@click.option("--set", "setting", multiple=True, metavar="TYPE[@ZONE]=PRICE", help=_("OPTION_PRICES_SET"))
@click.option("--remove", multiple=True, metavar="TYPE[@ZONE]", help=_("OPTION_PRICES_REMOVE"))
def prices(session: Session, setting: Sequence[str], remove: Sequence[str]) -> None:
    found = session.fermi.costs.prices()
    if setting or remove:
        known = {_make_price_key(one["gpuType"], one["zoneId"]): one["perGpuHour"] for one in found["prices"]}
        names = {one["zoneName"]: one["zoneId"] for one in found["prices"]}
        for key in [_parse_price_key(given, names) for given in remove]:
            known.pop(key, None)
        for given in setting:
            what, _sign, price = given.rpartition("=")
            known[_parse_price_key(what, names)] = _parse_price(given, price)
        asked: list[PriceRequest] = [
            {"gpuType": gpu_type, "zoneId": zone, "perGpuHour": price} for (gpu_type, zone), price in known.items()
        ]
        found = session.fermi.costs.set_prices(asked)
    output.print_result(found, session.form, lambda: _render_prices(found))


def _parse_moment(given: str | None) -> str | None:
    """Parse a day or a time; UTC where no zone is given, as months are in UTC."""
    if given is None:
        return None
    try:
        return parse_moment(given, UTC)
    except ValueError:
        raise click.UsageError(_("NOT_A_TIME", given=given)) from None


def _make_price_key(gpu_type: str, zone: str) -> tuple[str, str]:
    return ("" if gpu_type == ANY_VALUE else gpu_type, "" if zone == ANY_VALUE else zone)


def _parse_price_key(given: str, names: dict[str, str]) -> tuple[str, str]:
    gpu_type, _sign, zone = given.partition("@")
    return _make_price_key(gpu_type, names.get(zone, zone))


def _parse_price(given: str, price: str) -> float:
    try:
        return float(price)
    except ValueError:
        raise click.UsageError(_("PRICE_NOT_A_NUMBER", given=given)) from None


def _render_prices(prices: PriceList) -> Iterator[RenderableType]:
    rows: list[list[output.Cell]] = [
        [
            one["gpuType"] or ANY_VALUE,
            one["zoneName"] or one["zoneId"] or ANY_VALUE,
            one["perGpuHour"],
            format_time(one["since"]),
        ]
        for one in prices["prices"]
    ]
    if not rows:
        yield output.make_line(_("NO_PRICES"))
        return
    price = _("PRICE_PER_GPU_HOUR", currency=prices["currency"])
    yield output.make_table([_("TYPE_OF_GPU"), _("ZONE"), price, _("HELD_SINCE")], rows)


def _translate_parts() -> dict[str, str]:
    """Return the names of what held time was used for, in the reader's language."""
    return {
        "training": _("PART_TRAINING"),
        "starting": _("PART_STARTING"),
        "saving": _("PART_SAVING"),
        "lost": _("PART_LOST"),
        "redone": _("PART_REDONE"),
        "idle": _("PART_IDLE"),
        "hung": _("PART_HUNG"),
    }


def _render_usage(usage: UsageReport) -> Iterator[RenderableType]:
    rows = [[one["name"] or one["key"], *_list_figures(one)] for one in usage["items"]]
    if len(rows) > 1:
        rows.append([_("IN_ALL"), *_list_figures(usage["total"])])
    headers = [_("NAME"), _("GPU_HOURS"), *_translate_parts().values(), _("HELD_NOW")]
    yield output.make_table([*headers, _("COST_IN", currency=usage["currency"]), _("GOODPUT"), _("ETTR")], rows)


def _list_figures(one: Any) -> list[output.Cell]:
    hours = [format_gpu_hours(one[name]) for name in ("gpuHours", *_translate_parts(), "openGpuHours")]
    return [*hours, _format_cost(one["cost"]), _format_share(one["goodput"]), _format_share(one["ettr"])]


def _format_cost(cost: float | None) -> str | None:
    return None if cost is None else f"{cost:.2f}"


def _format_share(share: float | None) -> str | None:
    return None if share is None else f"{share:.1%}"


def _describe_flops(flops: ModelFlops | None) -> list[tuple[str, str | None]]:
    if flops is None or flops["peakTflops"] is None:
        return []
    share, tflops, peak = (
        _format_share(flops["utilisation"]) or "",
        f"{flops['tflops']:.4g}",
        f"{flops['peakTflops']:.4g}",
    )
    return [(_("MODEL_FLOPS"), _("MODEL_FLOPS_IS", share=share, tflops=tflops, peak=peak))]


def _render_task_usage(one: TaskUsage) -> Iterator[RenderableType]:
    cost = _format_cost(one["cost"])
    parts: Any = one
    yield output.make_pairs(
        [
            (_("WAITED"), format_duration(one["queuedSeconds"])),
            (_("HELD_FOR"), format_duration(one["heldSeconds"])),
            *(
                (f"  {said}", format_duration(parts[part]))
                for part, said in _translate_parts().items()
                if parts[part] >= 1
            ),
            (_("GPU_HOURS"), format_gpu_hours(one["gpuHours"])),
            (_("COST"), cost and f"{cost} {one['currency']}"),
            (_("GOODPUT"), _format_share(one["goodput"])),
            (_("ETTR"), _format_share(one["ettr"])),
            *_describe_flops(one["modelFlops"]),
        ]
    )
    rows: list[list[output.Cell]] = [
        [node["name"], node["zone"], node["gpuType"], node["gpus"], format_time(node["since"]),
         _("STILL_HELD") if node["open"] else format_time(node["until"]), format_duration(node["training"]),
        _format_cost(node["cost"])] for node in one["nodes"]
    ]  # fmt: skip
    if rows:
        headers = [_("ENVIRONMENT"), _("ZONE"), _("TYPE_OF_GPU"), _("COUNT_OF_GPUS"), _("HELD_SINCE"), _("HELD_UNTIL")]
        yield output.make_table([*headers, _("PART_TRAINING"), _("COST")], rows)
