"""Commands for tasks: list, show, stop, run again, remove."""

import re
import sys
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import click
from rich.console import RenderableType

from fermi.cli import output, rank_progress
from fermi.cli.options import Session, add_follow_options, command
from fermi.cli.task_detail import format_task_status, get_loss, print_resume_point, render_task
from fermi.cli.texts import _
from fermi.cli.times import format_age, format_time_left
from fermi.client import NotFoundError
from fermi.client.types import RankPulse, TaskQueue

_SNAPSHOT_ID = re.compile(r"[0-9a-f]{8,64}")
STATUSES = ["initializing", "queued", "starting", "running", "stopping", "succeeded", "failed", "stopped"]


@command("list")
@click.option("--status", multiple=True, type=click.Choice(STATUSES), help=_("OPTION_STATUS"))
@click.option("--framework")
@click.option("--env", "environment", help=_("OPTION_TASKS_ENV"))
@click.option("--zone", help=_("OPTION_INVENTORY_ZONE"))
@click.option("--owner")
@click.option("--project")
@click.option("--search", help=_("OPTION_INVENTORY_SEARCH"))
@click.option("--parameter", multiple=True, metavar="CONDITION", help=_("OPTION_TASKS_PARAMETER"))
@click.option("--created-after", metavar="TIME", help=_("OPTION_CREATED_AFTER"))
@click.option("--created-before", metavar="TIME", help=_("OPTION_CREATED_AFTER"))
@click.option("--ordering", metavar="COLUMN", help=_("OPTION_TASKS_ORDERING"))
@click.option("-n", "--limit", type=click.IntRange(1), default=20, show_default=True)
@click.option("--all", "everything", is_flag=True, help=_("OPTION_ALL"))
def list_tasks(session: Session, limit: int, everything: bool, status: tuple[str, ...], **filters: Any) -> None:
    listing = session.fermi.tasks.list(status=status, **filters)
    items = list(listing) if everything else listing.first(limit)
    total, exact = len(items), True
    if len(items) == limit and not everything:
        counted = listing.page(size=1)
        total, exact = max(total, counted["total"]), counted.get("totalIsExact", True)  # an older platform counts all
    output.print_result(
        {"items": items, "total": total, "totalIsExact": exact}, session.form, lambda: _render_tasks(items)
    )
    if total > len(items) or not exact:
        output.print_message(_("SHOWN_OF_TOTAL", shown=len(items), total=total if exact else f"{total}+"))


def _render_tasks(items: list[Any]) -> Iterator[RenderableType]:
    rows = [
        [
            task["taskId"],
            task["taskName"],
            format_task_status(task),
            task.get("priorityClass"),  # an older platform has none
            task["framework"],
            f"{task['nodeCount']}/{task['worldSize']}",
            _format_step(task),
            format_time_left(task.get("estimatedEndAt")),
            get_loss(task),
            task["attempt"] or None,
            task["owner"],
            format_age(task["createdAt"]),
        ]
        for task in items
    ]
    headers = ["ID", _("NAME"), _("STATUS"), _("PRIORITY_CLASS"), _("FRAMEWORK"), _("NODES_AND_RANKS"), _("STEP")]
    yield output.make_table([*headers, _("LEFT_ESTIMATED"), _("LOSS"), _("ATTEMPT"), _("OWNER"), _("CREATED")], rows)


def _format_step(task: Any) -> str | None:
    if task["step"] is None:
        return None
    return f"{task['step']}/{task['totalSteps']}" if task["totalSteps"] else str(task["step"])


@command("get", _("MORE_GET"))
@click.argument("task")
@add_follow_options
def get(session: Session, task: str, wait: bool, follow: bool) -> int:
    if wait or follow:
        from fermi.cli.follow import follow_to_end

        return follow_to_end(session, task, live=follow)
    found = session.fermi.tasks.get(task)
    pulses = _list_pulses(session, task) if found["status"] == "running" else {}
    place = _get_queue_place(session, task) if found["status"] == "queued" else None
    shown: Any = found
    if pulses:
        shown = {**found, "ranks": [{**rank, "pulse": pulses.get(rank["rank"])} for rank in found["ranks"]]}
    output.print_result(
        shown, session.form, lambda: [*render_task(found, place), *rank_progress.render_rank_table(pulses.values())]
    )
    return 0


def _get_queue_place(session: Session, task: str) -> TaskQueue | None:
    """Return the task's position in the queue; None from an older platform."""
    with suppress(NotFoundError):
        return session.fermi.tasks.queue(task)
    return None


def _list_pulses(session: Session, task: str) -> dict[int, RankPulse]:
    """Return the progress by rank; empty from an older platform."""
    with suppress(NotFoundError):
        return {one["rank"]: one for one in session.fermi.tasks.pulses(task)["ranks"]}
    return {}


@command("stop", _("MORE_STOP"))
@click.argument("tasks", nargs=-1, required=True)
@click.option("--wait", is_flag=True, help=_("OPTION_TASKS_WAIT"))
def stop(session: Session, tasks: tuple[str, ...], wait: bool) -> None:
    for task in tasks:
        print_resume_point(session, task)
        session.fermi.tasks.stop(task)
        output.print_message(_("TASK_STOPPING", id=task) if not wait else _("WAITING_FOR_END", id=task))
    if wait:
        for task in tasks:
            output.print_message(f"{task}: {session.fermi.tasks.wait(task)['status']}")


@command("grow", _("MORE_GROW"))
@click.argument("task")
def grow(session: Session, task: str) -> None:
    found = session.fermi.tasks.grow(task)
    elastic = found["elastic"]
    said = _("TASK_GROWING", id=task, nodes=elastic["largest"] if elastic else 0)
    output.print_result(found, session.form, lambda: [said])


@command("retry", _("MORE_RETRY"))
@click.argument("task")
@click.option("--same-code", is_flag=True, help=_("OPTION_SAME_CODE"))
@click.option("--current-code", is_flag=True, help=_("OPTION_CURRENT_CODE"))
@click.option("--code", "folder", metavar="FOLDER", help=_("OPTION_RETRY_CODE"))
@add_follow_options
def retry(
    session: Session, task: str, wait: bool, follow: bool, *, same_code: bool, current_code: bool, folder: str | None
) -> int:
    if same_code + current_code + bool(folder) > 1:
        raise click.UsageError(_("RETRY_ONE_CODE"))
    print_resume_point(session, task)
    if folder:
        from fermi.cli import snapshots

        project = session.fermi.tasks.get(task)["projectId"]
        created = session.fermi.tasks.retry(
            task, snapshot=snapshots.send_snapshot(session.fermi, folder, project)["id"]
        )
    else:
        choice = "snapshot" if same_code else "current" if current_code else _choose_code(session, task)
        created = session.fermi.tasks.retry(task, code=choice)
    if wait or follow:
        from fermi.cli.follow import follow_to_end

        output.print_message(_("TASK_CREATED", id=created["taskId"]))
        return follow_to_end(session, created["taskId"], live=follow)
    output.print_result(created, session.form, lambda: [output.make_pairs([(_("TASK"), created["taskId"])])])
    return 0


def _choose_code(session: Session, task: str) -> str:
    """Return which code to run: the present code where it has changed, else the task's snapshot. Print which one,
    unless there is no choice."""
    try:
        found = session.fermi.tasks.code_source(task)
    except NotFoundError:  # an older platform, which says of an unknown task the same when it is to retry it
        return "auto"
    snapshot = (found["snapshotId"] or "")[:12]
    if found["changed"]:
        source = f"{found['url']} {found['revision']}" if found["url"] else f"{found['environment']}:{found['path']}"
        output.print_message(_("RETRY_CURRENT_CODE", source=source, snapshot=snapshot))
        return "current"
    if snapshot and found["why"]:
        output.print_message(_("RETRY_CODE_UNKNOWN", why=found["why"]["message"], snapshot=snapshot))
    elif snapshot and found["kind"] == "upload":
        output.print_message(_("RETRY_SENT_CODE", task=task, snapshot=snapshot))
    return "snapshot"


@command("clone", _("MORE_CLONE"))
@click.argument("task", metavar="TASK|SNAPSHOT")
@click.argument("folder", required=False, metavar="[FOLDER]")
@click.option("--code", "with_code", is_flag=True, help=_("OPTION_CLONE_CODE"))
def clone(session: Session, task: str, folder: str | None, with_code: bool) -> None:
    if folder or with_code or _SNAPSHOT_ID.fullmatch(task):
        from fermi.cli.commands.code import extract_snapshot

        extract_snapshot(session, task, folder)
        return
    found = session.fermi.tasks.clone(task)
    if session.form == "table":
        click.echo(output.format_yaml(found["request"]), nl=False)
    else:
        output.print_result(found, session.form, list)


@command("delete", output=False)
@click.argument("tasks", nargs=-1, required=True)
@click.option("-y", "--yes", is_flag=True, help=_("OPTION_YES"))
def delete(session: Session, tasks: tuple[str, ...], yes: bool) -> None:
    if not yes:
        if not sys.stdin.isatty():
            raise click.UsageError(_("NOBODY_TO_ASK"))
        question = _("ASK_DELETE_TASKS", count=len(tasks))
        click.confirm(question, abort=True, err=True)
    for task in tasks:
        session.fermi.tasks.delete(task)
        output.print_message(_("DELETED", id=task))
