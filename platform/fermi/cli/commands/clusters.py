"""Commands for clusters."""

from collections.abc import Iterator

import click
from rich.console import RenderableType
from rich.text import Text

from fermi.cli import output
from fermi.cli.name_resolution import NameResolver
from fermi.cli.options import Session, command
from fermi.cli.texts import _
from fermi.client.types import ClusterItem, ClusterReport

LEVEL_COLOURS = {"pass": "green", "warn": "yellow", "fail": "red"}


@command("clusters", _("MORE_CLUSTERS"))
@click.argument("action", type=click.Choice(["list", "check"]), default="list")
@click.argument("name", required=False)
def clusters(session: Session, action: str, name: str | None) -> int:
    known = list(session.fermi.clusters.list())
    if action == "list":
        output.print_result({"items": known, "total": len(known)}, session.form, lambda: _render_clusters(known))
        return 0
    report = session.fermi.clusters.check(NameResolver(session.fermi).cluster(name, known))
    output.print_result(report, session.form, lambda: _render_report(report))
    return 0 if report["fit"] else 1


def _render_clusters(items: list[ClusterItem]) -> Iterator[RenderableType]:
    rows = [(item["id"], item["name"], item["backend"]) for item in items]
    yield output.make_table(["ID", _("NAME"), _("ENGINE")], rows)


def _render_report(report: ClusterReport) -> Iterator[RenderableType]:
    rows = [
        (Text(one["level"], LEVEL_COLOURS[one["level"]]), one["code"], one["message"]) for one in report["findings"]
    ]
    yield output.make_table([_("RESULT"), _("CODE"), _("FINDING")], rows)
    for one in report["findings"]:
        if one["level"] != "pass":
            yield output.make_heading(one["message"])
            yield output.make_line("\n".join(filter(None, [one["hint"], one["remedy"].rstrip()])))
