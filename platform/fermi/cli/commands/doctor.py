"""Commands that check the platform's own machine by trying things out."""

from collections.abc import Iterator
from typing import Any

import click
from rich.console import RenderableType
from rich.text import Text

from fermi import messages
from fermi.cli import output
from fermi.cli.commands.clusters import LEVEL_COLOURS
from fermi.cli.manage import run_manage_command
from fermi.cli.options import Session, command
from fermi.cli.texts import _, get_language


@command("doctor", _("MORE_DOCTOR"))
@click.argument("part", type=click.Choice(["isolation"]))
@click.option("--data", metavar="FOLDER", help=_("OPTION_DATA"))
def doctor(session: Session, part: str, data: str | None) -> int:
    code, said = run_manage_command(f"check_{part}", data=data)
    if said is None:
        return code
    output.print_result(said, session.form, lambda: _render_findings(said["findings"]))
    return 0 if all(one["level"] == "pass" for one in said["findings"]) else 1


def _render_findings(findings: list[dict[str, Any]]) -> Iterator[RenderableType]:
    told = [(one, *messages.render_text(one["code"], get_language(), **one["params"])) for one in findings]
    rows = [(Text(one["level"], LEVEL_COLOURS[one["level"]]), one["code"], message) for one, message, _hint in told]
    yield output.make_table([_("RESULT"), _("CODE"), _("FINDING")], rows)
    for one, message, hint in told:
        if one["level"] != "pass":
            yield output.make_heading(message)
            yield output.make_line(hint)
