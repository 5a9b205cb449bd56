"""The command for rules that give roles by groups of an identity provider."""

import sys
from collections.abc import Sequence
from typing import Any, cast

import click

from fermi.cli import output
from fermi.cli.input_files import read_request
from fermi.cli.options import Session, command
from fermi.cli.texts import _
from fermi.client.types import RoleRuleItem, RoleRulePreview, RoleRuleRequest

FIELDS = ("provider", "claim", "pattern", "projectId", "createProject", "administrator", "role")
MAX_NAMES = 20


@command("role-rules", _("MORE_ROLE_RULES"))
@click.argument("action", type=click.Choice(["list", "preview", "apply", "delete"]), default="list")
@click.argument("what", required=False, metavar="FILE|ID")
@click.option("-y", "--yes", is_flag=True, help=_("OPTION_YES"))
def role_rules(session: Session, action: str, what: str | None, yes: bool) -> None:
    there = session.fermi.role_rules
    if action == "list":
        items = list(there.list())
        output.print_result({"items": items, "total": len(items)}, session.form, lambda: [_make_table(items)])
        return
    if not what:
        raise click.UsageError(_("SAY_WHICH_ROLE_RULE", action=action))
    rule, rule_id = (None, what) if action == "delete" else _split_rule(read_request(what))
    preview = there.preview(rule, rule_id)
    if action == "preview":
        output.print_result(preview, session.form, lambda: [output.make_line(line) for line in _list_changes(preview)])
        return
    for line in _list_changes(preview):
        output.print_message(line)
    if not yes:
        if not sys.stdin.isatty():
            raise click.UsageError(_("NOBODY_TO_ASK"))
        click.confirm(_("ROLE_RULE_CONFIRM"), abort=True, err=True)
    if rule is None:
        there.delete(str(rule_id), preview["fingerprint"])
        output.print_message(_("ROLE_RULE_DELETED", id=rule_id))
        return
    saved = there.save(rule, preview["fingerprint"], rule_id)
    output.print_result(saved, session.form, lambda: [_make_table([saved])])


def _split_rule(request: dict[str, Any]) -> tuple[RoleRuleRequest, str | None]:
    """Return the rule of a file, and the id of the one that it replaces. What `list` printed is a rule, too."""
    known = {*FIELDS, "id"}
    shown = {"projectName", "peopleCount", "createdAt", "createdBy", "updatedAt", "updatedBy"}
    if unknown := sorted(set(request) - known - shown):
        raise click.UsageError(_("ROLE_RULE_FIELD", field=unknown[0], allowed=", ".join(sorted(known))))
    return cast(RoleRuleRequest, {name: request[name] for name in FIELDS if name in request}), request.get("id")


def _list_changes(preview: RoleRulePreview) -> list[str]:
    lines = [
        _(
            "ROLE_RULE_CHANGE",
            name=change["username"],
            project=change["projectName"],
            before=change["before"] or "–",
            after=change["after"] or "–",
        )
        for change in preview["changes"][:MAX_NAMES]
    ]
    if preview["changesTotal"] > len(lines):
        lines.append(_("ROLE_RULE_MORE", count=preview["changesTotal"] - len(lines)))
    lines += [_("ROLE_RULE_NEW_ADMINISTRATOR", name=name) for name in preview["newAdministrators"]]
    lines += [_("ROLE_RULE_LOST_ADMINISTRATOR", name=name) for name in preview["lostAdministrators"]]
    lines.append(
        _(
            "ROLE_RULE_COUNTS",
            gaining=preview["gaining"],
            losing=preview["losing"],
            tokens=preview["tokensTotal"],
            known=preview["knownTotal"],
            unknown=preview["unknownTotal"],
        )
    )
    return lines


def _make_table(items: Sequence[RoleRuleItem]) -> output.Table:
    rows: list[list[output.Cell]] = [
        [item["id"], item["pattern"], item["provider"] or "*", item["claim"], _describe(item), item["peopleCount"]]
        for item in items
    ]
    headers = [_("ID"), _("GROUP"), _("ROLE_RULE_SOURCE"), _("ROLE_RULE_CLAIM"), _("ROLE"), _("ROLE_RULE_PEOPLE")]
    return output.make_table(headers, rows)


def _describe(item: RoleRuleItem) -> str:
    if item["administrator"]:
        return _("ROLE_RULE_EVERYWHERE")
    project = _("ROLE_RULE_OWN_PROJECT") if item["createProject"] else item["projectName"]
    return f"{project}: {item['role']}"
