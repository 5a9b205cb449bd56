"""Commands for the queue: what waits, why, and when it will start; pausing and resuming."""

from collections.abc import Iterator
from typing import Any

import click
from rich.console import RenderableType

from fermi.cli import output
from fermi.cli.name_resolution import NameResolver
from fermi.cli.options import Session, command
from fermi.cli.task_detail import print_resume_point
from fermi.cli.texts import _
from fermi.cli.times import format_age, format_time
from fermi.client.types import QueueItem, TaskQueue


@command("queue", _("MORE_QUEUE"))
@click.argument("action", type=click.Choice(["list", "explain", "move"]), default="list")
@click.argument("task", required=False)
@click.option("--project", help=_("OPTION_QUEUE_PROJECT"))
@click.option("--before", metavar="TASK", help=_("OPTION_QUEUE_BEFORE"))
@click.option("-n", "--limit", type=click.IntRange(1), default=50, show_default=True)
def queue(session: Session, action: str, task: str | None, project: str | None, before: str | None, limit: int) -> None:
    if action == "list":
        listing = session.fermi.queue(NameResolver(session.fermi).project(project) if project else None)
        items = listing.first(limit)
        total = listing.total if len(items) == limit else len(items)
        output.print_result({"items": items, "total": total}, session.form, lambda: _render_queue(items))
        if total > len(items):
            output.print_message(_("SHOWN_OF_TOTAL", shown=len(items), total=total))
        return
    if not task:
        raise click.UsageError(_("SAY_WHICH_TASK", action=action))
    found = session.fermi.tasks.queue(task) if action == "explain" else session.fermi.tasks.move(task, before)
    output.print_result(found, session.form, lambda: render_explanation(found))


@command("pause", _("MORE_PAUSE"))
@click.argument("tasks", nargs=-1, required=True)
def pause(session: Session, tasks: tuple[str, ...]) -> None:
    for task in tasks:
        print_resume_point(session, task)
        session.fermi.tasks.pause(task)
        output.print_message(_("TASK_PAUSING", id=task))


@command("resume", _("MORE_RESUME"))
@click.argument("tasks", nargs=-1, required=True)
def resume(session: Session, tasks: tuple[str, ...]) -> None:
    for task in tasks:
        print_resume_point(session, task)
        session.fermi.tasks.resume(task)
        output.print_message(_("TASK_RESUMED", id=task))


def _render_queue(items: list[QueueItem]) -> Iterator[RenderableType]:
    rows: list[list[output.Cell]] = [
        [
            item["number"],
            item["taskId"],
            item["taskName"] or _("TASK_OF_OTHERS"),
            item["owner"] or None,
            item["priority"],
            item["asks"]["text"],
            format_age(item["since"]),
            _describe_start(item),
            item["reason"]["message"] if item["reason"] else None,
        ]
        for item in items
    ]
    headers = ["#", "ID", _("NAME"), _("OWNER"), _("PRIORITY_CLASS"), _("ASKS_FOR"), _("WAITS_SINCE"), _("BEGINS")]
    yield output.make_table([*headers, _("REASON")], rows)


def render_explanation(queue: TaskQueue) -> Iterator[RenderableType]:
    reason, engine, number = queue["reason"], queue["engine"], queue["number"]
    position = engine["position"] if engine else None
    yield output.make_pairs(
        [
            (_("TASK"), queue["taskId"]),
            (_("PLACE_IN_QUEUE"), _("NUMBER_OF_ALL", number=number, all=queue["of"]) if number else None),
            (_("PLACE_IN_ENGINE"), position),
            (_("REASON"), reason["message"] if reason else None),
            ("", reason["hint"] if reason else None),
            (_("BEGINS"), _describe_start(queue) if number else format_time(engine and engine.get("begins"))),
        ]
    )
    if queue["after"]:
        yield output.make_heading(_("MUST_END_FIRST"))
        yield output.make_table(
            [_("TASK"), _("NAME"), _("ENDS")],
            [[one["taskId"], one["name"] or _("TASK_OF_OTHERS"), format_time(one["until"]) or _("NOT_KNOWN")]
             for one in queue["after"]],
        )  # fmt: skip
    if queue["needs"]:
        yield output.make_heading(_("KEPT_FOR_IT"))
        rows: list[list[output.Cell]] = [
            [one["environmentId"], one["name"] or None, _name_holder(one)] for one in queue["needs"]
        ]
        yield output.make_table(["ID", _("ENVIRONMENT"), _("HELD_BY")], rows)
    if queue["sooner"]:
        yield output.make_heading(_("WOULD_BEGIN_SOONER"))
        for one in queue["sooner"]:
            yield output.make_line(f"  • {one['message']}")
            if one["hint"]:
                yield output.make_line(f"    → {one['hint']}")


def _name_holder(need: Any) -> str | None:
    """Return the name of the task that holds an environment; an older platform does not send it."""
    return need.get("heldByName") or need["heldBy"] or (_("TASK_OF_OTHERS") if need["held"] else None)


def _describe_start(found: Any) -> str:
    """Return when a task will start, and between which times, as far as known."""
    if not found["begins"]:
        return _("NOT_KNOWN")
    exact = found["early"] == found["late"]
    return f"{format_time(found['begins'])}" + (
        "" if exact else f" ({format_time(found['early'])} – {format_time(found['late']) or '?'})"
    )
