"""What tasks can be made of."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import click
from rich.console import RenderableType

from fermi.cli import output
from fermi.cli.options import Session, command
from fermi.cli.texts import _
from fermi.cli.times import short
from fermi.client.listing import Listing


def _show(session: Session, listing: Listing[Any], render: Callable[[list[Any]], Iterable[RenderableType]]) -> None:
    items = list(listing)
    output.show({"items": items, "total": len(items)}, session.form, lambda: render(items))


@command("envs")
@click.option("--zone", multiple=True, help=_("Name or id of an availability zone."))
@click.option("--status", multiple=True, type=click.Choice(["running", "stopped", "unhealthy"]))
@click.option("--gpu-type", multiple=True, help=_("Such as A100."))
@click.option("--kind", multiple=True, type=click.Choice(["jupyter", "vscode", "custom"]))
@click.option("--min-gpus", type=int)
@click.option("--search", help=_("Part of the name or id."))
@click.option("--ordering", metavar="COLUMN", help=_("Such as gpuCount, or -gpuCount for descending."))
def envs(session: Session, **filters: Any) -> None:
    _show(session, session.fermi.environments.list(**filters), _environments)


def _environments(items: list[Any]) -> Iterator[RenderableType]:
    rows = [
        [
            item["id"],
            item["name"],
            item["zone"]["name"],
            output.status(item["status"]),
            _gpus(item),
            item["cpuCores"],
            item["memoryGb"],
            item["kind"],
            item["stack"],
            None if item["uptimeSeconds"] is None else short(item["uptimeSeconds"]),
            _availability(item),
        ]
        for item in items
    ]
    headers = ["ID", _("Name"), _("Zone"), _("Status"), "GPU", "CPU", _("Memory GB"), _("Kind"), _("Stack"), _("Up")]
    yield output.table([*headers, _("Free")], rows)


def _gpus(item: Any) -> str:
    if not item["gpuCount"]:
        return "-"
    return f"{item['gpuCount']}×{item['gpuType']}" + (f" ({_('emulated')})" if item["emulated"] else "")


def _availability(item: Any) -> str:
    if item["heldBy"]:
        return item["heldBy"]
    reason = item["notSelectableReason"]
    return reason["message"] if reason else _("yes")


@command("zones")
def zones(session: Session) -> None:
    def render(items: list[Any]) -> Iterator[RenderableType]:
        rows = [[item["id"], item["name"], item["environmentCount"], item["gpuCount"]] for item in items]
        yield output.table(["ID", _("Name"), _("Environments"), "GPU"], rows)

    _show(session, session.fermi.zones(), render)


@command("datasets")
@click.option("--search", help=_("Part of the name or id."))
def datasets(session: Session, search: str | None) -> None:
    _show(session, session.fermi.datasets.list(search=search), _datasets)


def _datasets(items: list[Any]) -> Iterator[RenderableType]:
    rows = []
    for item in items:
        name: tuple[str, str] = (item["id"], item["name"])
        for version in item["versions"]:
            error = version["error"]
            state = version["status"]
            rows.append(
                [
                    *name,
                    version["id"],
                    version["name"],
                    output.status(state),
                    f"{version['progress']:.0%}" if state == "preparing" else version["trainTokens"],
                    version["validTokens"],
                    error["message"] if error else version["source"],
                ]
            )
            name = ("", "")
    headers = ["ID", _("Name"), _("Version"), _("Version name"), _("Status"), _("Training tokens")]
    yield output.table([*headers, _("Validation tokens"), _("Source")], rows)


@command("models")
@click.option("--search", help=_("Part of the name or id."))
def models(session: Session, search: str | None) -> None:
    def render(items: list[Any]) -> Iterator[RenderableType]:
        rows = [[item["id"], item["name"], item["recipe"], item["parameters"], item["description"]] for item in items]
        yield output.table(["ID", _("Name"), _("Recipe"), _("Parameters"), _("Description")], rows)

    _show(session, session.fermi.models.list(search=search), render)


@command("frameworks")
def frameworks(session: Session) -> None:
    def render(items: list[Any]) -> Iterator[RenderableType]:
        rows = [
            [
                item["value"],
                ", ".join(item["aliases"]),
                item["label"],
                ", ".join(item["parallelism"]),
                item["description"],
            ]
            for item in items
        ]
        yield output.table([_("Framework"), _("Also"), _("Name"), _("Parallelism"), _("Description")], rows)

    _show(session, session.fermi.frameworks(), render)
