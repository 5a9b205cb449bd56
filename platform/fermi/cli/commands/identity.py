"""Commands for providers that people sign in with, and for sessions in browsers."""

from collections.abc import Sequence

import click

from fermi.cli import output
from fermi.cli.options import Session, command
from fermi.cli.texts import _
from fermi.cli.times import format_time
from fermi.client.types import IdentityProviderItem, SessionItem


@command("identity", _("MORE_IDENTITY"))
@click.argument("action", type=click.Choice(["list", "show", "enable", "disable"]), default="list")
@click.argument("provider", required=False)
def identity(session: Session, action: str, provider: str | None) -> None:
    there = session.fermi.identity_providers
    if action == "list":
        items = list(there.list())
        output.print_result({"items": items, "total": len(items)}, session.form, lambda: [_make_table(items)])
        return
    if not provider:
        raise click.UsageError(_("SAY_WHICH_PROVIDER", action=action))
    if action == "show":
        found = there.get(provider)
    else:
        found = there.change(provider, {"enabled": action == "enable"})
    output.print_result(found, session.form, lambda: [_make_facts(found)])


@command("sessions", _("MORE_SESSIONS"))
@click.argument("action", type=click.Choice(["list", "end"]), default="list")
@click.argument("ids", nargs=-1)
@click.option("--user", help=_("OPTION_SESSIONS_USER"))
@click.option("--all", "every", is_flag=True, help=_("OPTION_SESSIONS_ALL"))
@click.option("--tokens", is_flag=True, help=_("OPTION_SESSIONS_TOKENS"))
def sessions(session: Session, action: str, ids: tuple[str, ...], user: str | None, every: bool, tokens: bool) -> None:
    there = session.fermi.sessions
    if action == "list":
        items = list(there.list(user))
        output.print_result({"items": items, "total": len(items)}, session.form, lambda: [_make_session_table(items)])
        return
    if every is bool(ids) or (tokens and not every):
        raise click.UsageError(_("SAY_WHICH_SESSIONS"))
    if every:
        ended = there.end_all_sessions(user, tokens=tokens)
        output.print_message(_("SESSIONS_ENDED", sessions=ended["sessions"], tokens=ended["tokens"]))
        return
    for one in ids:
        there.end_session(one, user)
        output.print_message(_("SESSION_ENDED", id=one))


def _make_table(items: Sequence[IdentityProviderItem]) -> output.Table:
    rows: list[list[output.Cell]] = [
        [item["id"], item["name"], item["kind"], _("YES") if item["enabled"] else _("NO"), item["linkCount"]]
        for item in items
    ]
    return output.make_table([_("ID"), _("NAME"), _("KIND"), _("PROVIDER_ENABLED"), _("PROVIDER_ACCOUNTS")], rows)


def _make_facts(item: IdentityProviderItem) -> output.Table:
    settings = item["settings"] if isinstance(item["settings"], dict) else {}
    return output.make_pairs(
        [
            (_("ID"), item["id"]),
            (_("NAME"), item["name"]),
            (_("KIND"), item["kind"]),
            (_("PROVIDER_ENABLED"), _("YES") if item["enabled"] else _("NO")),
            (_("PROVIDER_CALLBACK"), item["callbackUrl"]),
            (_("PROVIDER_ACCOUNTS"), item["linkCount"]),
            *((name, str(value)) for name, value in sorted(settings.items())),
        ]
    )


def _make_session_table(items: Sequence[SessionItem]) -> output.Table:
    rows = [
        [
            item["id"],
            item["device"],
            item["address"],
            format_time(item["createdAt"]),
            format_time(item["lastSeenAt"]),
            _("SESSION_THIS") if item["current"] else "",
        ]
        for item in items
    ]
    return output.make_table([_("ID"), _("DEVICE"), _("ADDRESS"), _("CREATED"), _("LAST_USED"), ""], rows)
