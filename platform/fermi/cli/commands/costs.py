"""What tasks used and what it cost; the price list."""

from collections.abc import Iterator, Sequence
from datetime import UTC
from typing import Any

import click
from rich.console import RenderableType

from fermi.cli import output
from fermi.cli.name_resolution import Names
from fermi.cli.options import Session, command
from fermi.cli.texts import _
from fermi.cli.times import clock, gpu_hours, short, typed
from fermi.client.types import ModelFlops, PriceList, PriceRequest, TaskUsage, UsageReport

BY = ["task", "user", "project", "environment", "month"]
ANY = "*"


@command("usage", _("MORE_USAGE"))
@click.argument("task", required=False)
@click.option("--by", type=click.Choice(BY), default="project", show_default=True, help=_("OPTION_USAGE_BY"))
@click.option("--from", "begins", metavar="TIME", help=_("OPTION_USAGE_FROM"))
@click.option("--to", "ends", metavar="TIME", help=_("OPTION_USAGE_TO"))
@click.option("--project", help=_("OPTION_USAGE_PROJECT"))
@click.option("--csv", is_flag=True, help=_("OPTION_USAGE_CSV"))
def usage(
    session: Session, task: str | None, by: Any, begins: str | None, ends: str | None, project: str | None, csv: bool
) -> None:
    fermi, begins, ends = session.fermi, _moment(begins), _moment(ends)
    if task:
        one = fermi.tasks.usage(task)
        output.show(one, session.form, lambda: _of_task(one))
        return
    where = Names(fermi).project(project) if project else None
    if csv:
        click.echo(fermi.costs.usage_csv(by, project=where, begins=begins, ends=ends), nl=False)
        return
    found = fermi.costs.usage(by, project=where, begins=begins, ends=ends)
    output.show(found, session.form, lambda: _report(found))


@command("prices", _("MORE_PRICES"))
@click.option("--set", "setting", multiple=True, metavar="TYPE[@ZONE]=PRICE", help=_("OPTION_PRICES_SET"))
@click.option("--remove", multiple=True, metavar="TYPE[@ZONE]", help=_("OPTION_PRICES_REMOVE"))
def prices(session: Session, setting: Sequence[str], remove: Sequence[str]) -> None:
    found = session.fermi.costs.prices()
    if setting or remove:
        known = {_key(one["gpuType"], one["zoneId"]): one["perGpuHour"] for one in found["prices"]}
        names = {one["zoneName"]: one["zoneId"] for one in found["prices"]}
        for key in [_read(given, names) for given in remove]:
            known.pop(key, None)
        for given in setting:
            what, _sign, price = given.rpartition("=")
            known[_read(what, names)] = _number(given, price)
        asked: list[PriceRequest] = [
            {"gpuType": gpu_type, "zoneId": zone, "perGpuHour": price} for (gpu_type, zone), price in known.items()
        ]
        found = session.fermi.costs.set_prices(asked)
    output.show(found, session.form, lambda: _prices(found))


def _moment(given: str | None) -> str | None:
    """A day or a time; UTC where nothing else is said, as months are."""
    if given is None:
        return None
    try:
        return typed(given, UTC)
    except ValueError:
        raise click.UsageError(_("NOT_A_TIME", given=given)) from None


def _key(gpu_type: str, zone: str) -> tuple[str, str]:
    return ("" if gpu_type == ANY else gpu_type, "" if zone == ANY else zone)


def _read(given: str, names: dict[str, str]) -> tuple[str, str]:
    gpu_type, _sign, zone = given.partition("@")
    return _key(gpu_type, names.get(zone, zone))


def _number(given: str, price: str) -> float:
    try:
        return float(price)
    except ValueError:
        raise click.UsageError(_("PRICE_NOT_A_NUMBER", given=given)) from None


def _prices(found: PriceList) -> Iterator[RenderableType]:
    rows: list[list[output.Cell]] = [
        [one["gpuType"] or ANY, one["zoneName"] or one["zoneId"] or ANY, one["perGpuHour"], clock(one["since"])]
        for one in found["prices"]
    ]
    if not rows:
        yield output.line(_("NO_PRICES"))
        return
    price = _("PRICE_PER_GPU_HOUR", currency=found["currency"])
    yield output.table([_("TYPE_OF_GPU"), _("ZONE"), price, _("HELD_SINCE")], rows)


def _parts() -> dict[str, str]:
    """What held time goes into, in the reader's language."""
    return {
        "training": _("PART_TRAINING"),
        "starting": _("PART_STARTING"),
        "saving": _("PART_SAVING"),
        "lost": _("PART_LOST"),
        "redone": _("PART_REDONE"),
        "idle": _("PART_IDLE"),
        "hung": _("PART_HUNG"),
    }


def _report(found: UsageReport) -> Iterator[RenderableType]:
    rows = [[one["name"] or one["key"], *_figures(one)] for one in found["items"]]
    if len(rows) > 1:
        rows.append([_("IN_ALL"), *_figures(found["total"])])
    headers = [_("NAME"), _("GPU_HOURS"), *_parts().values(), _("HELD_NOW")]
    yield output.table([*headers, _("COST_IN", currency=found["currency"]), _("GOODPUT"), _("ETTR")], rows)


def _figures(one: Any) -> list[output.Cell]:
    hours = [gpu_hours(one[name]) for name in ("gpuHours", *_parts(), "openGpuHours")]
    return [*hours, _money(one["cost"]), _share(one["goodput"]), _share(one["ettr"])]


def _money(cost: float | None) -> str | None:
    return None if cost is None else f"{cost:.2f}"


def _share(share: float | None) -> str | None:
    return None if share is None else f"{share:.1%}"


def _flops(found: ModelFlops | None) -> list[tuple[str, str | None]]:
    if found is None or found["peakTflops"] is None:
        return []
    share, tflops, peak = _share(found["utilisation"]) or "", f"{found['tflops']:.4g}", f"{found['peakTflops']:.4g}"
    return [(_("MODEL_FLOPS"), _("MODEL_FLOPS_IS", share=share, tflops=tflops, peak=peak))]


def _of_task(one: TaskUsage) -> Iterator[RenderableType]:
    cost = _money(one["cost"])
    parts: Any = one
    yield output.pairs(
        [
            (_("WAITED"), short(one["queuedSeconds"])),
            (_("HELD_FOR"), short(one["heldSeconds"])),
            *((f"  {said}", short(parts[part])) for part, said in _parts().items() if parts[part] >= 1),
            (_("GPU_HOURS"), gpu_hours(one["gpuHours"])),
            (_("COST"), cost and f"{cost} {one['currency']}"),
            (_("GOODPUT"), _share(one["goodput"])),
            (_("ETTR"), _share(one["ettr"])),
            *_flops(one["modelFlops"]),
        ]
    )
    rows: list[list[output.Cell]] = [
        [node["name"], node["zone"], node["gpuType"], node["gpus"], clock(node["since"]),
         _("STILL_HELD") if node["open"] else clock(node["until"]), short(node["training"]), _money(node["cost"])]
        for node in one["nodes"]
    ]  # fmt: skip
    if rows:
        headers = [_("ENVIRONMENT"), _("ZONE"), _("TYPE_OF_GPU"), _("COUNT_OF_GPUS"), _("HELD_SINCE"), _("HELD_UNTIL")]
        yield output.table([*headers, _("PART_TRAINING"), _("COST")], rows)
