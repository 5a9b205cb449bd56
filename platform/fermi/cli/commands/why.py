"""Command that shows why a task is in its state, on one screen, with the possible next steps as commands to paste."""

import shlex
from collections.abc import Iterator
from typing import Any

import click
from rich.console import RenderableType
from rich.text import Text

from fermi.cli import output
from fermi.cli.error_handler import EXIT_TRAINING_FAILED
from fermi.cli.name_resolution import NameResolver
from fermi.cli.options import Session, command
from fermi.cli.task_detail import print_resume_point
from fermi.cli.texts import _
from fermi.cli.times import format_age
from fermi.client.types import FindingAction, TaskDiagnosis, TaskFinding

LEVEL_MARKS = {"info": ("·", "dim"), "warn": ("!", "yellow"), "fail": ("✗", "red")}
MAX_LINES = 12
"""Of a log or a stack."""
CLONE_COMMAND = "fermi clone {task} > task.yaml && fermi submit -f task.yaml"
ACTION_COMMANDS = {
    "RESTART_FROM_CHECKPOINT": "fermi restart {task}",
    "WITHOUT_NODE": "fermi restart {task} --without {environmentId}",
    "USE_SPARE": "fermi restart {task} --replace {environmentId}",
    "STOP": "fermi stop {task}",
    "RESUME": "fermi resume {task}",
    "LOWER_BATCH": CLONE_COMMAND,
    "RAISE_LIMIT": CLONE_COMMAND,
    "CHANGE_FIELD": CLONE_COMMAND,
    "CHOOSE_OTHERS": CLONE_COMMAND,
    "SEE_LOG": "fermi logs {task} --rank {rank}",
    "SEE_TASK": "fermi why {other}",
    "ADD_SECRET": "fermi secrets set {secret}",
}
"""How an action is done from here; the others are advice, or done on the page."""


@command("why", _("MORE_WHY"))
@click.argument("task")
@click.option("--json", "as_json", is_flag=True, help=_("OPTION_JSON"))
def why(session: Session, task: str, as_json: bool) -> int:
    session.form = "json" if as_json else session.form
    found = session.fermi.tasks.diagnosis(task)
    output.print_result(found, session.form, lambda: _render_diagnosis(found))
    return 0 if found["healthy"] else EXIT_TRAINING_FAILED


@command("restart", _("MORE_RESTART"))
@click.argument("task")
@click.option("--without", multiple=True, metavar="ENV", help=_("OPTION_WITHOUT"))
@click.option("--replace", multiple=True, metavar="ENV", help=_("OPTION_REPLACE"))
def restart(session: Session, task: str, without: tuple[str, ...], replace: tuple[str, ...]) -> None:
    if without and replace:
        raise click.UsageError(_("WITHOUT_OR_REPLACE"))
    nodes = NameResolver(session.fermi).environments(without or replace) if without or replace else []
    print_resume_point(session, task)
    found = session.fermi.tasks.restart(task, leave_out=nodes, use_spares=bool(replace))
    output.print_result(found, session.form, lambda: [_("TASK_RESTARTED", id=found["taskId"])])


def _render_diagnosis(diagnosis: TaskDiagnosis) -> Iterator[RenderableType]:
    mark, style = ("✓", "green") if diagnosis["healthy"] else ("✗", "red")
    yield Text.assemble((f"{mark} ", style), diagnosis["taskId"], "  ", output.format_status(diagnosis["status"]))
    yield output.make_line(diagnosis["summary"], "bold")
    if point := diagnosis.get("resumePoint"):
        yield output.make_line(point["message"])
    for finding in diagnosis["findings"]:
        if finding["until"] is None:
            yield from _render_finding(diagnosis, finding)
    if earlier := [one for one in diagnosis["findings"] if one["until"] is not None]:
        yield output.make_heading(_("EARLIER"))
        rows = [[one["attempt"], format_age(one["since"]) if one["since"] else None, one["message"]] for one in earlier]
        yield output.make_table([_("ATTEMPT"), _("BEGUN"), ""], rows)


def _render_finding(diagnosis: TaskDiagnosis, finding: TaskFinding) -> Iterator[RenderableType]:
    mark, style = LEVEL_MARKS[finding["level"]]
    said = "" if finding["message"] == diagnosis["summary"] else f"{finding['message']}  "
    places = [
        _("SINCE", time=format_age(finding["since"])) if finding["since"] else "",
        _("OF_ATTEMPT", number=finding["attempt"]) if finding["attempt"] else "",
        *(_describe_place(where) for where in finding["where"]),
    ]
    yield ""
    yield Text.assemble(
        (f"{mark} ", style), output.make_line(said), output.make_line(" · ".join(filter(None, places)), "dim")
    )
    if finding["hint"]:
        yield output.make_line(f"  → {finding['hint']}")
    for one in finding["evidence"]:
        yield output.make_line(f"  {one['message']}")
        for line in one["lines"][-MAX_LINES:]:
            yield output.make_line(f"  │ {line}", "dim")
        if (left := len(one["lines"]) - MAX_LINES) > 0:
            yield output.make_line(f"  │ ({_('LINES_ABOVE', count=left)})", "dim")
    if doable := [one for one in finding["actions"] if one["allowed"]]:
        yield output.make_pairs(
            [
                (f"  {output.escape_controls(one['label'])}", _suggest_command(diagnosis["taskId"], one))
                for one in doable
            ]
        )


def _describe_place(where: Any) -> str:
    rank = _("AT_RANK", rank=where["rank"]) if where["rank"] is not None else ""
    return " ".join(filter(None, (rank, where["node"])))


def _suggest_command(task: str, action: FindingAction) -> str:
    """Return the command to paste; the effect of the action where there is no command for it, or where its platform
    names things otherwise."""
    params = {name: shlex.quote(str(value)) for name, value in action["params"].items()}
    try:
        return ACTION_COMMANDS[action["code"]].format(**{**params, "other": params.get("task"), "task": task})
    except KeyError:
        return action["hint"] or "–"
