"""The command for the table of runs."""

import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import click
from rich.cells import cell_len
from rich.console import RenderableType

from fermi.cli import output
from fermi.cli.options import Session, command
from fermi.cli.task_detail import format_task_status
from fermi.cli.texts import _
from fermi.cli.times import format_age
from fermi.client import InvalidRequestError
from fermi.client.types import RunGroup, RunGroupList, RunItem

FORMATS = ["table", "json", "csv", "parquet"]
ARCHIVED = ["false", "true", "all"]


@command("runs", _("MORE_RUNS"))
@click.argument("query", nargs=-1)
@click.option("--columns", "-c", multiple=True, metavar="FIELD,…", help=_("OPTION_RUNS_COLUMNS"))
@click.option("--sort", metavar="FIELD", help=_("OPTION_RUNS_SORT"))
@click.option("--group-by", multiple=True, metavar="FIELD,…", help=_("OPTION_RUNS_GROUP_BY"))
@click.option("--project", metavar="ID", help=_("OPTION_RUNS_PROJECT"))
@click.option(
    "--archived", type=click.Choice(ARCHIVED), default="false", show_default=True, help=_("OPTION_RUNS_ARCHIVED")
)
@click.option("--format", "form", type=click.Choice(FORMATS), help=_("OPTION_RUNS_FORMAT"))
@click.option("--file", "path", type=click.Path(dir_okay=False, path_type=Path), help=_("OPTION_RUNS_FILE"))
@click.option("-n", "--limit", type=click.IntRange(1), default=20, show_default=True)
@click.option("--all", "everything", is_flag=True, help=_("OPTION_ALL"))
def runs(
    session: Session,
    query: tuple[str, ...],
    columns: tuple[str, ...],
    sort: str | None,
    group_by: tuple[str, ...],
    form: Any,
    path: Path | None,
    limit: int,
    everything: bool,
    **filters: Any,
) -> None:
    text, chosen = " ".join(query), _split_names(columns)
    shown = "json" if form == "json" else session.form
    try:
        if form in ("csv", "parquet"):
            _export(session, text, chosen, sort, form, path, filters)
        elif group_by:
            found = session.fermi.runs.groups(_split_names(group_by), text, columns=chosen, **filters)
            output.print_result(found, shown, lambda: _render_groups(found))
        else:
            _list(session, text, chosen, sort, shown, limit, everything, filters)
    except InvalidRequestError as refused:
        _mark_place(text, refused)
        raise


def _split_names(given: Sequence[str]) -> list[str]:
    return [name for part in given for name in part.split(",") if name]


def _list(
    session: Session,
    text: str,
    columns: Sequence[str],
    sort: str | None,
    form: str,
    limit: int,
    everything: bool,
    filters: Mapping[str, Any],
) -> None:
    listing = session.fermi.runs.list(text, columns=columns, sort=sort, **filters)
    if everything:
        items = list(listing)
        output.print_result({"items": items}, form, lambda: _render(items))
        return
    if limit > 200:
        items = listing.first(limit)
        output.print_result({"items": items}, form, lambda: _render(items))
        return
    page = listing.page(limit)
    output.print_result(page, form, lambda: _render(page["items"]))
    if unknown := page.get("unknownNames"):  # earlier servers do not have it
        output.print_message(_("RUNS_NAMES_UNKNOWN", names=", ".join(unknown)))
    if not page["searched"]["complete"]:
        output.print_message(_("RUNS_SEARCHED", tasks=page["searched"]["tasks"]))
    elif page["nextCursor"]:
        total = page["total"]
        known = "?" if total is None else total if page["totalIsExact"] else f"{total}+"
        output.print_message(_("SHOWN_OF_TOTAL", shown=len(page["items"]), total=known))


def _render(items: Sequence[RunItem]) -> Iterator[RenderableType]:
    keys = list(dict.fromkeys(key for item in items for key in item["values"]))
    rows: list[list[output.Cell]] = [
        [
            item["task"]["taskId"],
            item["task"]["taskName"],
            format_task_status(item["task"]),
            *(_format_value(item["values"].get(key)) for key in keys),
            ", ".join(item["tags"]) or None,
            format_age(item["task"]["createdAt"]),
        ]
        for item in items
    ]
    yield output.make_table(["ID", _("NAME"), _("STATUS"), *keys, _("RUNS_TAGS"), _("CREATED")], rows)


def _render_groups(found: RunGroupList) -> Iterator[RenderableType]:
    fields = list(dict.fromkeys(key for group in found["items"] for key in group["key"]))
    columns = list(dict.fromkeys(key for group in found["items"] for key in group["values"]))
    rows: list[list[output.Cell]] = [
        [*(_format_value(group["key"].get(key)) for key in fields), group["count"], *_format_figures(group, columns)]
        for group in found["items"]
    ]
    figures = [
        f"{key} {name}" for key in columns for name in (_("RUNS_MEAN"), _("RUNS_STD"), _("RUNS_MIN"), _("RUNS_MAX"))
    ]
    yield output.make_table([*fields, _("RUNS_COUNT"), *figures], rows)
    if not found["complete"]:
        yield output.make_line(_("RUNS_GROUPS_CUT", tasks=found["tasks"]), "dim")


def _format_figures(group: RunGroup, columns: Sequence[str]) -> Iterator[output.Cell]:
    for key in columns:
        figures: Any = group["values"].get(key) or {}
        for name in ("mean", "std", "min", "max"):
            yield figures.get(name)


def _format_value(value: Any) -> output.Cell:
    return value if value is None or isinstance(value, str | int | float) else str(value)


def _export(
    session: Session,
    text: str,
    columns: Sequence[str],
    sort: str | None,
    form: Any,
    path: Path | None,
    filters: Mapping[str, Any],
) -> None:
    if path is None and form == "parquet" and sys.stdout.isatty():
        raise click.UsageError(_("RUNS_FILE_NEEDED"))
    with session.fermi.runs.export(text, columns=columns, sort=sort, format=form, **filters) as pieces:
        if path is None:
            for piece in pieces:
                sys.stdout.buffer.write(piece)
            sys.stdout.buffer.flush()
        else:
            with path.open("wb") as file:
                file.writelines(pieces)


def _mark_place(text: str, refused: InvalidRequestError) -> None:
    """Print the query with a mark below the part that is wrong."""
    for problem in refused.errors:
        if problem.field == "query" and problem.place is not None:
            begin, end = problem.place
            before, wrong = (_make_line(part) for part in (text[:begin], text[begin:end]))
            click.echo(f"  {before}{wrong}{_make_line(text[end:])}", err=True)
            click.echo(f"  {' ' * cell_len(before)}{'^' * max(1, cell_len(wrong))}", err=True)


def _make_line(text: str) -> str:
    return output.escape_controls(text.replace("\n", " ").replace("\t", " "))
