"""Commands for notifications: the inbox, the channels, and the rules of what is sent where."""

import sys
from typing import cast, get_args

import click

from fermi.cli import output
from fermi.cli.name_resolution import NameResolver
from fermi.cli.options import Session, command
from fermi.cli.texts import _
from fermi.cli.times import format_time
from fermi.client.types import (
    ChannelCreateRequest,
    InboxItem,
    IncidentKind,
    NoticeChannel,
    NoticeDelivery,
    NoticeRule,
    RuleCreateRequest,
)

INCIDENT_KINDS = ", ".join(get_args(IncidentKind))


@command("notices", _("MORE_NOTICES"))
@click.argument("action", type=click.Choice(["list", "read"]), default="list")
@click.argument("ids", nargs=-1)
@click.option("--unread", is_flag=True, help=_("OPTION_NOTICES_UNREAD"))
def notices(session: Session, action: str, ids: tuple[str, ...], unread: bool) -> None:
    there = session.fermi.notices
    if action == "read":
        left = there.read(ids or None)
        output.print_result({"unread": left}, session.form, lambda: [_("UNREAD_LEFT", count=left)])
        return
    items = there.inbox(unread=unread).first(50)
    output.print_result({"items": items, "total": len(items)}, session.form, lambda: [_render_inbox(items)])


@command("channels", _("MORE_CHANNELS"))
@click.argument("action", type=click.Choice(["list", "add", "test", "log", "remove"]), default="list")
@click.argument("name", required=False)
@click.option("--address", help=_("OPTION_CHANNELS_ADDRESS"))
@click.option("--project", help=_("OPTION_CHANNELS_PROJECT"))
@click.option("--platform", is_flag=True, help=_("OPTION_CHANNELS_PLATFORM"))
def channels(
    session: Session, action: str, name: str | None, address: str | None, project: str | None, platform: bool
) -> None:
    there = session.fermi.notices
    if action == "list":
        items = list(there.channels())
        output.print_result({"items": items, "total": len(items)}, session.form, lambda: [_render_channels(items)])
        return
    if not name:
        raise click.UsageError(_("SAY_WHICH_CHANNEL", action=action))
    if action == "add":
        given = address or _read_address(name)
        asked = {
            "name": name,
            "kind": "webhook" if given.startswith(("http://", "https://")) else "apprise",
            "address": given,
            **_choose_scope(session, project, platform=platform),
        }
        made = there.create_channel(cast(ChannelCreateRequest, asked))
        output.print_result(made, session.form, lambda: [_render_channels([cast(NoticeChannel, made)])])
        if made["secret"] and session.form == "table":
            output.print_message(_("WEBHOOK_SECRET", secret=made["secret"]))
        return
    key = _resolve_channel(list(there.channels()), name)
    if action == "test":
        tried = there.test_channel(key)
        output.print_result(tried, session.form, lambda: [_render_deliveries([tried])])
        if tried["outcome"] != "sent":
            sys.exit(1)
    elif action == "log":
        sent = there.deliveries(key).first(50)
        output.print_result({"items": sent, "total": len(sent)}, session.form, lambda: [_render_deliveries(sent)])
    else:
        there.delete_channel(key)
        output.print_message(_("DELETED", id=name))


@command("notice-rules", _("MORE_NOTICE_RULES"))
@click.argument("action", type=click.Choice(["list", "add", "remove"]), default="list")
@click.argument("name", required=False)
@click.option("--channel", "to", multiple=True, help=_("OPTION_NOTICE_RULES_CHANNEL"))
@click.option(
    "--kind", "kinds", multiple=True, help=_("OPTION_NOTICE_RULES_KIND", kinds=", ".join(get_args(IncidentKind)))
)
@click.option(
    "--level", type=click.Choice(["info", "warn", "fail"]), default="info", help=_("OPTION_NOTICE_RULES_LEVEL")
)
@click.option("--restarts", type=click.IntRange(1), help=_("OPTION_NOTICE_RULES_RESTARTS"))
@click.option("--waits", type=click.IntRange(1), help=_("OPTION_NOTICE_RULES_WAITS"))
@click.option("--quiet", metavar="HH:MM-HH:MM", help=_("OPTION_NOTICE_RULES_QUIET"))
@click.option("--timezone", help=_("OPTION_NOTICE_RULES_TIMEZONE"))
@click.option("--project", help=_("OPTION_CHANNELS_PROJECT"))
@click.option("--platform", is_flag=True, help=_("OPTION_CHANNELS_PLATFORM"))
def notice_rules(
    session: Session, action: str, name: str | None, to: tuple[str, ...], kinds: tuple[str, ...], level: str,
    restarts: int | None, waits: int | None, quiet: str | None, timezone: str | None, project: str | None,
    platform: bool,
) -> None:  # fmt: skip
    there = session.fermi.notices
    if action == "list":
        items = list(there.rules())
        output.print_result({"items": items, "total": len(items)}, session.form, lambda: [_render_rules(items)])
        return
    if not name:
        raise click.UsageError(_("SAY_WHICH_NOTICE_RULE", action=action))
    if action == "remove":
        known = {one["name"]: one["id"] for one in there.rules()}
        there.delete_rule(known.get(name, name))
        output.print_message(_("DELETED", id=name))
        return
    known_channels = list(there.channels())
    begins, ends = _parse_quiet_hours(quiet)
    asked = {
        "name": name,
        "channels": [_resolve_channel(known_channels, one) for one in to],
        "kinds": [*kinds],
        "level": level,
        "restarts": restarts,
        "waitsSeconds": waits and waits * 60,
        "quietFrom": begins,
        "quietTo": ends,
        **({"timezone": timezone} if timezone else {}),
        **_choose_scope(session, project, platform=platform),
    }
    made = there.create_rule(cast(RuleCreateRequest, asked))
    output.print_result(made, session.form, lambda: [_render_rules([made])])


def _choose_scope(session: Session, project: str | None, *, platform: bool) -> dict[str, str]:
    if project and platform:
        raise click.UsageError(_("PROJECT_OR_PLATFORM"))
    if project:
        return {"scope": "project", "projectId": NameResolver(session.fermi).project(project)}
    return {"scope": "platform" if platform else "me"}


def _read_address(name: str) -> str:
    """Return a channel's address, from a prompt or standard input: most addresses contain a password."""
    if sys.stdin.isatty():
        text: str = click.prompt(_("ASK_ADDRESS_OF", name=name), hide_input=True, err=True)
        return text.strip()
    return sys.stdin.read().strip()


def _resolve_channel(channels: list[NoticeChannel], name: str) -> str:
    """Return the id of the channel with this id or unique name."""
    found = [one["id"] for one in channels if one["name"] == name]
    return found[0] if len(found) == 1 else name


def _parse_quiet_hours(text: str | None) -> tuple[int | None, int | None]:
    """Parse quiet hours and return minutes of the day."""
    if text is None:
        return None, None
    try:
        begins, ends = (_parse_minute(part) for part in text.split("-"))
    except ValueError:
        raise click.BadParameter(_("NOT_QUIET_HOURS", found=text), param_hint="--quiet") from None
    return begins, ends


def _parse_minute(text: str) -> int:
    hours, minutes = (int(part) for part in text.strip().split(":"))
    if not (0 <= hours < 24 and 0 <= minutes < 60):
        raise ValueError(text)
    return hours * 60 + minutes


def _render_inbox(items: list[InboxItem]) -> output.Table:
    rows = [
        [
            format_time(item["updatedAt"]),
            item["level"],
            item["title"],
            item["body"],
            "" if item["readAt"] else "•",
            item["id"],
        ]
        for item in items
    ]
    return output.make_table([_("TIME"), _("LEVEL"), _("WHAT"), _("REASON"), "", _("ID")], rows)


def _render_channels(items: list[NoticeChannel]) -> output.Table:
    rows = [
        [item["name"], item["projectId"] or item["scope"], item["address"], format_time(item["lastSentAt"]),
         item["failures"] or "", item["id"]]
        for item in items
    ]  # fmt: skip
    return output.make_table([_("NAME"), _("OF_WHOM"), _("ADDRESS"), _("LAST_SENT"), _("FAILURES"), _("ID")], rows)


def _render_rules(items: list[NoticeRule]) -> output.Table:
    rows = [
        [item["name"], item["projectId"] or item["scope"], ", ".join(item["kinds"]) or "*", item["level"],
         ", ".join(item["channels"]), item["id"]]
        for item in items
    ]  # fmt: skip
    return output.make_table([_("NAME"), _("OF_WHOM"), _("WHAT"), _("LEVEL"), _("CHANNELS"), _("ID")], rows)


def _render_deliveries(items: list[NoticeDelivery]) -> output.Table:
    rows = [
        [
            format_time(item["createdAt"]),
            item["title"],
            item["outcome"],
            len(item["tries"]),
            _format_last_delivery(item),
        ]
        for item in items
    ]
    return output.make_table([_("TIME"), _("WHAT"), _("STATUS"), _("TRIES"), _("REASON")], rows)


def _format_last_delivery(item: NoticeDelivery) -> str:
    tried = item["tries"][-1] if item["tries"] else None
    if tried is None:
        return ""
    return tried["error"]["message"] if tried["error"] else tried["answer"]
