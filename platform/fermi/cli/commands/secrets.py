"""Secrets of a project: set and removed by name; nobody is shown a value again."""

import sys

import click

from fermi.cli import output
from fermi.cli.name_resolution import Names
from fermi.cli.options import Session, command
from fermi.cli.texts import _
from fermi.cli.times import clock
from fermi.client.types import SecretItem


@command("secrets", _("MORE_SECRETS"))
@click.argument("action", type=click.Choice(["list", "set", "remove"]), default="list")
@click.argument("name", required=False)
@click.option("--project", help=_("OPTION_SECRETS_PROJECT"))
def secrets(session: Session, action: str, name: str | None, project: str | None) -> None:
    projects = session.fermi.projects
    if action != "list" and not name:
        raise click.UsageError(_("SAY_WHICH_SECRET", action=action))
    where = Names(session.fermi).project(project)
    if action == "list":
        items = list(projects.secrets(where))
        output.show({"items": items, "total": len(items)}, session.form, lambda: [_table(items)])
    elif action == "set":
        assert name
        made = projects.set_secret(where, name, _value(name))
        output.show(made, session.form, lambda: [_table([made])])
    else:
        assert name
        projects.remove_secret(where, name)
        output.say(_("DELETED", id=name))


def _value(name: str) -> str:
    """Without the line's end that an editor or `echo` leaves."""
    if sys.stdin.isatty():
        text: str = click.prompt(
            _("ASK_VALUE_OF", name=name), hide_input=True, confirmation_prompt=_("ONCE_MORE"), err=True
        )
        return text
    return sys.stdin.read().removesuffix("\n").removesuffix("\r")


def _table(items: list[SecretItem]) -> output.Table:
    rows = [
        [item["name"], clock(item["createdAt"]), item["createdBy"], clock(item["updatedAt"]), item["updatedBy"]]
        for item in items
    ]
    return output.table([_("NAME"), _("CREATED"), _("BY"), _("CHANGED"), _("BY")], rows)
