"""Commands that list what tasks can be made of: environments, datasets, models, frameworks."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import click
from rich.console import RenderableType

from fermi.characters import escape_name
from fermi.cli import output
from fermi.cli.options import Session, command
from fermi.cli.texts import _
from fermi.cli.times import format_duration
from fermi.client.pagination import Listing

STATUSES = ["creating", "starting", "running", "stopping", "stopped", "failed", "unhealthy", "deleted"]


def _print_listing(
    session: Session, listing: Listing[Any], render: Callable[[list[Any]], Iterable[RenderableType]]
) -> None:
    items = list(listing)
    output.print_result({"items": items, "total": len(items)}, session.form, lambda: render(items))


@command("envs")
@click.option("--zone", multiple=True, help=_("OPTION_INVENTORY_ZONE"))
@click.option("--status", multiple=True, type=click.Choice(STATUSES))
@click.option("--gpu-type", multiple=True, help=_("OPTION_INVENTORY_GPU_TYPE"))
@click.option("--kind", multiple=True, type=click.Choice(["jupyter", "vscode", "custom"]))
@click.option("--min-gpus", type=int)
@click.option("--search", help=_("OPTION_INVENTORY_SEARCH"))
@click.option("--ordering", metavar="COLUMN", help=_("OPTION_INVENTORY_ORDERING"))
def envs(session: Session, **filters: Any) -> None:
    _print_listing(session, session.fermi.environments.list(**filters), render_environments)


def render_environments(items: list[Any]) -> Iterator[RenderableType]:
    rows = [
        [
            item["id"],
            item["name"],
            item["zone"]["name"],
            output.format_status(item["status"]),
            _format_gpus(item),
            item["cpuCores"],
            item["memoryGb"],
            item["kind"],
            item["stack"],
            None if item["uptimeSeconds"] is None else format_duration(item["uptimeSeconds"]),
            _format_availability(item),
        ]
        for item in items
    ]
    headers = ["ID", _("NAME"), _("ZONE"), _("STATUS"), "GPU", "CPU", _("MEMORY_GB"), _("KIND"), _("STACK"), _("UP")]
    yield output.make_table([*headers, _("FREE")], rows)


def _format_gpus(item: Any) -> str:
    if not item["gpuCount"]:
        return "-"
    return f"{item['gpuCount']}×{item['gpuType']}" + (f" ({_('IS_EMULATED')})" if item["emulated"] else "")


def _format_availability(item: Any) -> str:
    if item["heldBy"]:
        return item["heldBy"]
    reason = item["notSelectableReason"]
    return reason["message"] if reason else _("YES")


@command("zones")
def zones(session: Session) -> None:
    def render(items: list[Any]) -> Iterator[RenderableType]:
        rows = [[item["id"], item["name"], item["environmentCount"], item["gpuCount"]] for item in items]
        yield output.make_table(["ID", _("NAME"), _("ENVIRONMENTS"), "GPU"], rows)

    _print_listing(session, session.fermi.zones(), render)


@command("datasets")
@click.option("--search", help=_("OPTION_INVENTORY_SEARCH"))
def datasets(session: Session, search: str | None) -> None:
    _print_listing(session, session.fermi.datasets.list(search=search), _render_datasets)


def _render_datasets(items: list[Any]) -> Iterator[RenderableType]:
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
                    output.format_status(state),
                    f"{version['progress']:.0%}" if state == "preparing" else version["trainTokens"],
                    version["validTokens"],
                    error["message"] if error else escape_name(version["source"]),
                ]
            )
            name = ("", "")
    headers = ["ID", _("NAME"), _("VERSION"), _("VERSION_NAME"), _("STATUS"), _("TRAINING_TOKENS")]
    yield output.make_table([*headers, _("VALIDATION_TOKENS"), _("SOURCE")], rows)


@command("models")
@click.option("--search", help=_("OPTION_INVENTORY_SEARCH"))
def models(session: Session, search: str | None) -> None:
    def render(items: list[Any]) -> Iterator[RenderableType]:
        rows = [[item["id"], item["name"], item["recipe"], item["parameters"], item["description"]] for item in items]
        yield output.make_table(["ID", _("NAME"), _("RECIPE"), _("PARAMETERS"), _("DESCRIPTION")], rows)

    _print_listing(session, session.fermi.models.list(search=search), render)


@command("frameworks")
def frameworks(session: Session) -> None:
    def render(items: list[Any]) -> Iterator[RenderableType]:
        rows = [
            [
                item["value"],
                ", ".join(item["aliases"]),
                item["label"],
                ", ".join(item["parallelism"]),
                _describe_installation(item),
                item["description"],
            ]
            for item in items
        ]
        yield output.make_table(
            [_("FRAMEWORK"), _("ALSO"), _("NAME"), _("PARALLELISM"), _("INSTALLED"), _("DESCRIPTION")], rows
        )

    _print_listing(session, session.fermi.frameworks(), render)


def _describe_installation(framework: Any) -> str:
    """Return on which clusters a framework is not installed; an older platform does not tell."""
    without = [one["clusterId"] for one in framework.get("clusters", ()) if one["available"] is False]
    return _("NOT_INSTALLED_ON", clusters=", ".join(without)) if without else _("YES")
