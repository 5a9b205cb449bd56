"""The command for rules by which pipelines get tokens of service accounts."""

from collections.abc import Sequence
from typing import Any

import click

from fermi.cli import output
from fermi.cli.input_files import read_request
from fermi.cli.name_resolution import NameResolver
from fermi.cli.options import Session, command
from fermi.cli.texts import _
from fermi.cli.times import format_time
from fermi.client.types import ExchangeRuleItem

READ_ONLY_FIELDS = {"id", "username", "createdAt", "createdBy", "lastUsedAt"}
"""What `list` prints and a new rule does not have."""


@command("exchange-rules", _("MORE_EXCHANGE_RULES"))
@click.argument("action", type=click.Choice(["list", "create", "delete"]), default="list")
@click.argument("what", required=False, metavar="FILE|ID")
@click.option("--project", help=_("OPTION_EXCHANGE_RULES_PROJECT"))
def exchange_rules(session: Session, action: str, what: str | None, project: str | None) -> None:
    there = session.fermi.service_accounts
    if action != "list" and not what:
        raise click.UsageError(_("EXCHANGE_RULES_WHICH", action=action))
    rule: Any = _read_rule(str(what)) if action == "create" else None
    where = NameResolver(session.fermi).project(project)
    if action == "list":
        items = list(there.exchange_rules(where))
        output.print_result({"items": items, "total": len(items)}, session.form, lambda: [_make_table(items)])
    elif action == "create":
        made = there.create_exchange_rule(where, rule)
        output.print_result(made, session.form, lambda: [_make_table([made])])
    else:
        there.delete_exchange_rule(where, str(what))
        output.print_message(_("DELETED", id=what))


def _read_rule(path: str) -> dict[str, Any]:
    return {name: value for name, value in read_request(path).items() if name not in READ_ONLY_FIELDS}


def _make_table(items: Sequence[ExchangeRuleItem]) -> output.Table:
    rows: list[list[output.Cell]] = [
        [
            item["id"],
            item["name"],
            item["username"],
            item["issuer"],
            " ".join(f"{claim}={value}" for claim, value in item["conditions"].items()),
            " ".join(item["scopes"]),
            item["minutes"],
            item["enabled"],
            format_time(item["lastUsedAt"]),
        ]
        for item in items
    ]
    headers = [
        _("ID"),
        _("NAME"),
        _("USER"),
        _("EXCHANGE_RULES_ISSUER"),
        _("EXCHANGE_RULES_CONDITIONS"),
        _("SCOPES"),
        _("EXCHANGE_RULES_MINUTES"),
        _("EXCHANGE_RULES_ENABLED"),
        _("LAST_USED"),
    ]
    return output.make_table(headers, rows)
