"""Commands for what people say of tasks as runs: tags, notes, which are archived."""

import sys
from collections.abc import Iterator, Sequence
from itertools import islice

import click
from rich.console import RenderableType

from fermi.cli import output
from fermi.cli.options import Session, command
from fermi.cli.texts import _
from fermi.client.runs import MAX_TASKS
from fermi.client.types import RunBulkItem, RunBulkResult

_REMOVED = "\0-"
"""Begins a word that removes a tag, once it is known to be no option; no argument of a program has this character."""


class TagCommand(click.Command):
    """A command whose words may begin with `-` without being options: `-baseline`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments, with words that begin with one `-` and are no option of the command as words."""
        known = {name for option in self.get_params(ctx) for name in (*option.opts, *option.secondary_opts)}
        words = [
            f"{_REMOVED}{word[1:]}" if word[:1] == "-" and word[1:2] not in ("", "-") and word not in known else word
            for word in args
        ]
        return super().parse_args(ctx, words)


@command("tag", _("MORE_TAG"), kind=TagCommand)
@click.argument("words", nargs=-1, required=True, metavar="TASK... [+TAG]... [-TAG]...")
def change_tags(session: Session, words: tuple[str, ...]) -> int:
    added = [word[1:] for word in words if word.startswith("+")]
    removed = [word.removeprefix(_REMOVED).removeprefix("-") for word in words if word.startswith((_REMOVED, "-"))]
    tasks = [word for word in words if not word.startswith(("+", _REMOVED, "-"))]
    if not tasks:
        raise click.UsageError(_("TAG_WITHOUT_TASK"))
    if not (added or removed):
        found = [session.fermi.tasks.get(task) for task in tasks]
        rows = [[one["taskId"], one["taskName"], ", ".join(one["tags"])] for one in found]
        output.print_result(
            {"items": [{"taskId": one["taskId"], "tags": one["tags"]} for one in found]},
            session.form,
            lambda: [output.make_table([_("TASK"), _("NAME"), _("TAGS")], rows)],
        )
        return 0
    results = []
    for part in _split(tasks):
        results += [session.fermi.runs.add_tags(part, added)] if added else []
        results += [session.fermi.runs.remove_tags(part, removed)] if removed else []
    return _print_results(session, results)


@command("note", _("MORE_NOTE"))
@click.argument("task")
@click.argument("text", required=False)
@click.option("--edit", is_flag=True, help=_("OPTION_NOTE_EDIT"))
def change_note(session: Session, task: str, text: str | None, edit: bool) -> None:
    if text is None and not edit:
        found = session.fermi.tasks.get(task)
        shown = {"taskId": found["taskId"], "note": found["note"]}
        output.print_result(shown, session.form, lambda: [output.make_line(found["note"] or _("NO_NOTE"))])
        return
    if edit:
        text = click.edit(session.fermi.tasks.get(task)["note"], extension=".md")
        if text is None:
            output.print_message(_("NOTE_UNCHANGED", id=task))
            return
    elif text == "-":
        text = sys.stdin.read()
    record = session.fermi.runs.change(task, note=text)
    output.print_result(record, session.form, lambda: [output.make_line(_("NOTE_STORED", id=task))])


@command("archive", _("MORE_ARCHIVE"))
@click.argument("tasks", nargs=-1, required=True)
@click.option("--undo", is_flag=True, help=_("OPTION_ARCHIVE_UNDO"))
def archive_tasks(session: Session, tasks: tuple[str, ...], undo: bool) -> int:
    return _print_results(session, [session.fermi.runs.archive(part, undo=undo) for part in _split(tasks)])


def _split(tasks: Sequence[str]) -> Iterator[list[str]]:
    left = iter(dict.fromkeys(tasks))
    while part := list(islice(left, MAX_TASKS)):
        yield part


def _print_results(session: Session, results: Sequence[RunBulkResult]) -> int:
    """Print what became of each task, and return the exit code: 1 if any was refused."""
    found: dict[str, RunBulkItem] = {}
    for item in (item for result in results for item in result["items"]):
        if item["taskId"] not in found or not item["done"]:
            found[item["taskId"]] = item
    items = list(found.values())
    output.print_result({"items": items}, session.form, lambda: _render(items))
    return 0 if all(item["done"] for item in items) else 1


def _render(items: Sequence[RunBulkItem]) -> Iterator[RenderableType]:
    for item in items:
        refusal = item["refusal"]
        text = f"{refusal['message']} {refusal['hint']}" if refusal else _("RUN_CHANGED")
        yield output.make_line(f"{item['taskId']}: {text}", "red" if refusal else "")
