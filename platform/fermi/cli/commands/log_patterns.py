"""The command for lines in the logs of a task that became curves: list them, switch one off, name its fields."""

from collections.abc import Iterator, Sequence

import click
from rich.console import RenderableType

from fermi.cli import output
from fermi.cli.options import Session, command
from fermi.cli.texts import _
from fermi.client.types import LogPattern


@command("log-patterns", _("MORE_LOG_PATTERNS"))
@click.argument("task")
@click.option("--off", type=click.IntRange(1), metavar="N", help=_("OPTION_PATTERN_OFF"))
@click.option("--on", type=click.IntRange(1), metavar="N", help=_("OPTION_PATTERN_ON"))
@click.option("--rename", multiple=True, metavar="OLD=NEW", help=_("OPTION_PATTERN_RENAME"))
@click.option("--ignore", multiple=True, metavar="NAME", help=_("OPTION_PATTERN_IGNORE"))
@click.option("--pattern", "only", type=click.IntRange(1), metavar="N", help=_("OPTION_PATTERN_ONLY"))
def log_patterns(
    session: Session,
    task: str,
    off: int | None,
    on: int | None,
    rename: Sequence[str],
    ignore: Sequence[str],
    only: int | None,
) -> None:
    tasks = session.fermi.tasks
    patterns = tasks.log_patterns(task)["items"]
    for number, enabled in ((off, False), (on, True)):
        if number:
            tasks.change_log_pattern(task, _choose(patterns, number)["key"], enabled=enabled)
    if names := _parse_names(rename, ignore):
        for pattern in [_choose(patterns, only)] if only else patterns:
            known = {field["name"] for field in pattern["fields"]}
            if fields := {name: shown for name, shown in names.items() if name in known}:
                tasks.change_log_pattern(task, pattern["key"], fields=fields)
        if absent := names.keys() - {field["name"] for pattern in patterns for field in pattern["fields"]}:
            raise click.UsageError(_("NO_PATTERN_FIELD", name=min(absent)))
    if off or on or names:
        patterns = tasks.log_patterns(task)["items"]
    output.print_result({"items": patterns}, session.form, lambda: _render(patterns))


def _choose(patterns: Sequence[LogPattern], number: int) -> LogPattern:
    if number > len(patterns):
        raise click.UsageError(_("NO_PATTERN_NUMBER", number=number, count=len(patterns)))
    return patterns[number - 1]


def _parse_names(rename: Sequence[str], ignore: Sequence[str]) -> dict[str, str]:
    """Return the names to show by printed name; an empty one leaves the field out."""
    names = dict.fromkeys(ignore, "")
    for pair in rename:
        old, separator, new = pair.partition("=")
        if not (separator and old and new):
            raise click.UsageError(_("PATTERN_RENAME_FORM", value=pair))
        names[old] = new
    return names


def _render(patterns: Sequence[LogPattern]) -> Iterator[RenderableType]:
    if not patterns:
        yield output.make_line(_("NO_LOG_PATTERNS"))
        return
    rows: list[list[output.Cell]] = [
        [number, _("YES") if pattern["enabled"] else _("NO"), pattern["line"], _describe_fields(pattern)]
        for number, pattern in enumerate(patterns, 1)
    ]
    yield output.make_table([_("PATTERN_NUMBER"), _("PATTERN_ON"), _("PATTERN_LINE"), _("PATTERN_FIELDS")], rows)


def _describe_fields(pattern: LogPattern) -> str:
    said = []
    for field in pattern["fields"]:
        unit = f" ({field['unit']})" if field["unit"] else ""
        renamed = "" if field["shownAs"] == field["name"] else f" → {field['shownAs'] or '–'}"
        said.append(f"{field['name']}{unit}{renamed}")
    return ", ".join(said)
