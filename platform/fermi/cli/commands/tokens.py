"""Commands for API tokens, and for service accounts of a project."""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import click

from fermi.cli import output
from fermi.cli.name_resolution import NameResolver
from fermi.cli.options import Session, command
from fermi.cli.texts import _
from fermi.cli.times import format_time
from fermi.client.types import ServiceAccountItem, TokenCreated

Function = TypeVar("Function", bound=Callable[..., Any])


def _add_limit_options(function: Function) -> Function:
    """Add --scope and --days."""
    for option in (
        click.option("--days", type=click.IntRange(1), help=_("OPTION_TOKENS_DAYS")),
        click.option("--scope", "scopes", multiple=True, help=_("OPTION_TOKENS_SCOPE")),
    ):
        function = option(function)
    return function


@command("tokens", _("MORE_TOKENS"))
@click.argument("action", type=click.Choice(["list", "create", "revoke"]), default="list")
@click.argument("names", nargs=-1)
@_add_limit_options
@click.option("--project", "projects", multiple=True, help=_("OPTION_TOKENS_PROJECT"))
@click.option("--task", "tasks", multiple=True, help=_("OPTION_TOKENS_TASK"))
@click.option("--all", "every", is_flag=True, help=_("OPTION_TOKENS_ALL"))
def tokens(
    session: Session, action: str, names: tuple[str, ...], scopes: tuple[str, ...], days: int | None,
    projects: tuple[str, ...], tasks: tuple[str, ...], every: bool,
) -> None:  # fmt: skip
    mine = session.fermi.tokens
    if action == "list":
        items = list(mine.list())
        output.print_result({"items": items, "total": len(items)}, session.form, lambda: [_make_token_table(items)])
        return
    if action == "create":
        if len(names) != 1:
            raise click.UsageError(_("SAY_WHICH_TOKEN_NAME"))
        resolver = NameResolver(session.fermi)
        made = mine.create(
            names[0],
            expires_in_days=days,
            scopes=scopes or None,
            projects=[resolver.project(one) for one in projects] or None,
            tasks=tasks or None,
        )
        _print_token(session, made)
        return
    if every is bool(names):
        raise click.UsageError(_("SAY_WHICH_TOKENS"))
    known = {} if every else {item["name"]: item["id"] for item in mine.list()}
    count = mine.revoke_many(None if every else [known.get(one, one) for one in names])
    output.print_message(_("TOKENS_REVOKED", count=count))


@command("service-accounts", _("MORE_SERVICE_ACCOUNTS"))
@click.argument("action", type=click.Choice(["list", "create", "delete", "token"]), default="list")
@click.argument("name", required=False)
@click.option("--project", help=_("OPTION_SERVICE_ACCOUNTS_PROJECT"))
@click.option("--role", type=click.Choice(["viewer", "member", "maintainer"]), help=_("OPTION_SERVICE_ACCOUNTS_ROLE"))
@click.option("--name", "purpose", help=_("OPTION_SERVICE_ACCOUNTS_NAME"))
@_add_limit_options
def service_accounts(
    session: Session, action: str, name: str | None, project: str | None, role: str | None, purpose: str | None,
    scopes: tuple[str, ...], days: int | None,
) -> None:  # fmt: skip
    there = session.fermi.service_accounts
    if action != "list" and not name:
        raise click.UsageError(_("SAY_WHICH_SERVICE_ACCOUNT", action=action))
    where = NameResolver(session.fermi).project(project)
    if action == "list":
        items = list(there.list(where))
        output.print_result({"items": items, "total": len(items)}, session.form, lambda: [_make_account_table(items)])
    elif action == "create":
        assert name
        made = there.create(where, name, role or "member")
        output.print_result(made, session.form, lambda: [_make_account_table([made])])
    elif action == "token":
        assert name
        token = there.create_token(where, name, purpose or "fermi", expires_in_days=days, scopes=scopes or None)
        _print_token(session, token)
    else:
        assert name
        there.delete(where, name)
        output.print_message(_("DELETED", id=name))


def _print_token(session: Session, made: TokenCreated) -> None:
    """Print the token alone on standard output, and that it is not shown again on standard error."""
    output.print_result(made, session.form, lambda: [made["token"]])
    if session.form == "table":
        output.print_message(_("TOKEN_SHOWN_ONCE", id=made["id"], ends=format_time(made["expiresAt"]) or "–"))


def _make_token_table(items: Sequence[Any]) -> output.Table:
    rows = [
        [
            item["id"],
            item["name"],
            "*" if item["scopes"] is None else " ".join(item["scopes"]),
            "*" if item["projects"] is None else " ".join(item["projects"]),
            format_time(item["expiresAt"]),
            format_time(item["lastUsedAt"]),
            item["lastUsedFrom"],
        ]
        for item in items
    ]
    return output.make_table(
        [_("ID"), _("NAME"), _("SCOPES"), _("PROJECT"), _("ENDS"), _("LAST_USED"), _("ADDRESS")], rows
    )


def _make_account_table(items: Sequence[ServiceAccountItem]) -> output.Table:
    rows = [
        [item["name"], item["username"], item["role"], item["tokens"], format_time(item["createdAt"])] for item in items
    ]
    return output.make_table([_("NAME"), _("USER"), _("ROLE"), _("TOKENS"), _("CREATED")], rows)
