"""Commands for secrets of a project: set and remove by name; values are never shown."""

import sys

import click

from fermi.cli import output
from fermi.cli.name_resolution import NameResolver
from fermi.cli.options import Session, command
from fermi.cli.texts import _
from fermi.cli.times import format_time
from fermi.client.types import SecretItem


@command("secrets", _("MORE_SECRETS"))
@click.argument("action", type=click.Choice(["list", "set", "remove"]), default="list")
@click.argument("name", required=False)
@click.option("--project", help=_("OPTION_SECRETS_PROJECT"))
def secrets(session: Session, action: str, name: str | None, project: str | None) -> None:
    projects = session.fermi.projects
    if action != "list" and not name:
        raise click.UsageError(_("SAY_WHICH_SECRET", action=action))
    where = NameResolver(session.fermi).project(project)
    if action == "list":
        items = list(projects.secrets(where))
        output.print_result({"items": items, "total": len(items)}, session.form, lambda: [_make_table(items)])
    elif action == "set":
        assert name
        made = projects.set_secret(where, name, _read_value(name))
        output.print_result(made, session.form, lambda: [_make_table([made])])
    else:
        assert name
        projects.remove_secret(where, name)
        output.print_message(_("DELETED", id=name))


def _read_value(name: str) -> str:
    """Return the value without the line end that an editor or `echo` adds."""
    if sys.stdin.isatty():
        text: str = click.prompt(
            _("ASK_VALUE_OF", name=name), hide_input=True, confirmation_prompt=_("ONCE_MORE"), err=True
        )
        return text
    return sys.stdin.read().removesuffix("\n").removesuffix("\r")


def _make_table(items: list[SecretItem]) -> output.Table:
    rows = [
        [
            item["name"],
            format_time(item["createdAt"]),
            item["createdBy"],
            format_time(item["updatedAt"]),
            item["updatedBy"],
        ]
        for item in items
    ]
    return output.make_table([_("NAME"), _("CREATED"), _("BY"), _("CHANGED"), _("BY")], rows)
