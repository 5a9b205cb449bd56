"""The command for the audit trail."""

import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import click

from fermi.cli import output
from fermi.cli.options import Session, command
from fermi.cli.texts import _
from fermi.cli.times import format_time, parse_iso, parse_time_option
from fermi.client.types import AuditEventItem

MAX_EXPORT_DAYS = 366


@command("audit", _("MORE_AUDIT"))
@click.option("--project", metavar="ID", help=_("OPTION_AUDIT_PROJECT"))
@click.option("--actor", metavar="NAME", help=_("OPTION_AUDIT_ACTOR"))
@click.option("--action", metavar="ACTION", help=_("OPTION_AUDIT_ACTION"))
@click.option("--target", metavar="ID", help=_("OPTION_AUDIT_TARGET"))
@click.option("--token", "token", metavar="ID", help=_("OPTION_AUDIT_TOKEN"))
@click.option("--address", metavar="ADDRESS", help=_("OPTION_AUDIT_ADDRESS"))
@click.option("--since", metavar="TIME", help=_("OPTION_AUDIT_SINCE"))
@click.option("--until", metavar="TIME", help=_("OPTION_AUDIT_UNTIL"))
@click.option("--limit", type=click.IntRange(1, 10_000), default=50, show_default=True, help=_("OPTION_AUDIT_LIMIT"))
@click.option("--export", "file", metavar="FILE", help=_("OPTION_AUDIT_EXPORT"))
def audit(
    session: Session, since: str | None, until: str | None, limit: int, file: str | None, **filters: str | None
) -> None:
    begin, end = parse_time_option(since), parse_time_option(until)
    if file is None:
        items = session.fermi.audit.events(**filters, begin=begin, end=end).first(limit)
        output.print_result({"items": items}, session.form, lambda: [_make_table(items)])
        return
    last = end or datetime.now(UTC).isoformat()
    first = begin or (parse_iso(last) - timedelta(days=MAX_EXPORT_DAYS)).isoformat()
    lines = session.fermi.audit.export(first, last, **filters)
    if file == "-":
        for line in lines:
            sys.stdout.write(line + "\n")
        return
    count = 0
    try:
        with Path(file).open("w", encoding="utf-8") as out:
            for line in lines:
                out.write(line + "\n")
                count += 1
    except OSError as error:
        raise click.UsageError(_("AUDIT_FILE_NOT_WRITABLE", file=file, why=error.strerror)) from error
    output.print_message(_("AUDIT_EXPORTED", count=count, file=file))


def _make_table(items: list[AuditEventItem]) -> output.Table:
    rows: list[list[output.Cell]] = [
        [
            format_time(item["at"]),
            item["actor"] or _("AUDIT_PLATFORM"),
            item["actionText"],
            item["target"],
            item["project"] or "",
            item["tokenName"] or item["token"],
            item["address"],
        ]
        for item in items
    ]
    headers = [
        _("TIME"),
        _("AUDIT_ACTOR"),
        _("AUDIT_ACTION"),
        _("AUDIT_TARGET"),
        _("PROJECT"),
        _("TOKEN"),
        _("ADDRESS"),
    ]
    return output.make_table(headers, rows)
