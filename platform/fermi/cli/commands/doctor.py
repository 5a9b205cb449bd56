"""What holds on the platform's own machine, tried and not believed."""

from collections.abc import Iterator
from typing import Any

import click
from rich.console import RenderableType
from rich.text import Text

from fermi import messages
from fermi.cli import output
from fermi.cli.commands.clusters import LEVELS
from fermi.cli.manage import ask_platform
from fermi.cli.options import Session, command
from fermi.cli.texts import _, language


@command("doctor", _("MORE_DOCTOR"))
@click.argument("part", type=click.Choice(["isolation"]))
@click.option("--data", metavar="FOLDER", help=_("OPTION_DATA"))
def doctor(session: Session, part: str, data: str | None) -> int:
    code, said = ask_platform(f"check_{part}", data=data)
    if said is None:
        return code
    output.show(said, session.form, lambda: _report(said["findings"]))
    return 0 if all(one["level"] == "pass" for one in said["findings"]) else 1


def _report(findings: list[dict[str, Any]]) -> Iterator[RenderableType]:
    told = [(one, *messages.render_text(one["code"], language(), **one["params"])) for one in findings]
    rows = [(Text(one["level"], LEVELS[one["level"]]), one["code"], message) for one, message, _hint in told]
    yield output.table([_("RESULT"), _("CODE"), _("FINDING")], rows)
    for one, message, hint in told:
        if one["level"] != "pass":
            yield output.heading(message)
            yield output.line(hint)
