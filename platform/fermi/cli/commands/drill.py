"""Commands for drills: whether training resumes after a rank was killed."""

from collections.abc import Iterator

import click
from rich.console import RenderableType
from rich.text import Text

from fermi.cli import input_files, output
from fermi.cli.error_handler import EXIT_TRAINING_FAILED
from fermi.cli.options import Session, command
from fermi.cli.texts import _
from fermi.client.types import Drill

LEVEL_MARKS = {"pass": ("✓ ", "green"), "fail": ("✗ ", "red"), "unknown": ("? ", "yellow")}


@command("drill", _("MORE_DRILL"))
@click.argument("task", required=False)
@click.option("-f", "--file", metavar="FILE", help=_("OPTION_DRILL_FILE"))
@click.option("--minutes", type=click.FloatRange(1, 1440), help=_("OPTION_DRILL_MINUTES"))
def drill(session: Session, task: str | None, file: str | None, minutes: float | None) -> int:
    if (task is None) == (file is None):
        raise click.UsageError(_("DRILL_ONE_OF"))
    drills = session.fermi.drills
    created = drills.create(task, request=input_files.read_request(file) if file else None, minutes=minutes)
    output.print_message(_("DRILLING", id=created["id"]))
    try:
        found = drills.wait(created["id"])
    except KeyboardInterrupt:
        drills.stop(created["id"])
        raise
    output.print_result(found, session.form, lambda: render_drill(found))
    verdict = found["verdict"]
    if verdict is None and found["reason"]:
        output.print_error(found["reason"]["message"])
    return 0 if verdict and verdict["level"] == "pass" else EXIT_TRAINING_FAILED


def render_drill(drill: Drill) -> Iterator[RenderableType]:
    saved = drill["checkpoint"]
    yield output.make_pairs(
        [
            (_("DRILL_OF_RESTART"), drill["id"]),
            (_("CHECKPOINT_OF_DRILL"), saved and saved["path"]),
            (_("BYTES"), saved and saved["sizeBytes"]),
            (_("KILLED_RANK"), None if drill["rank"] is None else f"{drill['rank']} ({drill['node']})"),
            (_("KILLED_AT_STEP"), drill["killedStep"]),
            (_("RESUMED_AT_STEP"), drill["resumedStep"]),
            (_("STEPS_LOST"), drill["stepsLost"]),
            (_("SECONDS_TO_RESTART"), drill["restartSeconds"]),
            (_("SECONDS_TO_STEP"), drill["resumedSeconds"]),
        ]
    )
    if verdict := drill["verdict"]:
        yield Text.assemble(LEVEL_MARKS[verdict["level"]], (output.escape_controls(verdict["message"]), "bold"))
        if verdict["hint"]:
            yield output.make_line(f"  → {verdict['hint']}")
