"""Engines to train on."""

from collections.abc import Iterator

import click
from rich.console import RenderableType
from rich.text import Text

from fermi.cli import output
from fermi.cli.name_resolution import Names
from fermi.cli.options import Session, command
from fermi.cli.texts import _
from fermi.client.types import ClusterItem, ClusterReport

LEVELS = {"pass": "green", "warn": "yellow", "fail": "red"}


@command("clusters", _("MORE_CLUSTERS"))
@click.argument("action", type=click.Choice(["list", "check"]), default="list")
@click.argument("name", required=False)
def clusters(session: Session, action: str, name: str | None) -> int:
    known = list(session.fermi.clusters.list())
    if action == "list":
        output.show({"items": known, "total": len(known)}, session.form, lambda: _clusters(known))
        return 0
    report = session.fermi.clusters.check(Names(session.fermi).cluster(name, known))
    output.show(report, session.form, lambda: _report(report))
    return 0 if report["fit"] else 1


def _clusters(items: list[ClusterItem]) -> Iterator[RenderableType]:
    rows = [(item["id"], item["name"], item["backend"]) for item in items]
    yield output.table(["ID", _("NAME"), _("ENGINE")], rows)


def _report(report: ClusterReport) -> Iterator[RenderableType]:
    rows = [(Text(one["level"], LEVELS[one["level"]]), one["code"], one["message"]) for one in report["findings"]]
    yield output.table([_("RESULT"), _("CODE"), _("FINDING")], rows)
    for one in report["findings"]:
        if one["level"] != "pass":
            yield output.heading(one["message"])
            yield output.line("\n".join(filter(None, [one["hint"], one["remedy"].rstrip()])))
