"""Commands for a project's own diagnosis rules: show, set from a file, test on a log."""

from collections.abc import Iterator
from pathlib import Path

import click
from rich.console import RenderableType

from fermi.cli import output
from fermi.cli.name_resolution import NameResolver
from fermi.cli.options import Session, command
from fermi.cli.texts import _
from fermi.client.types import DiagnosisRulesTest

MAX_LOG_BYTES = 128 << 10


@command("rules", _("MORE_RULES"))
@click.argument("action", type=click.Choice(["show", "set", "test"]), default="show")
@click.argument("file", required=False, type=click.Path(dir_okay=False, allow_dash=True, path_type=Path))
@click.option("--project", help=_("OPTION_SECRETS_PROJECT"))
@click.option("--rules", "own", type=click.Path(dir_okay=False, path_type=Path), help=_("OPTION_RULES"))
def rules(session: Session, action: str, file: Path | None, project: str | None, own: Path | None) -> None:
    projects = session.fermi.projects
    if action != "show" and not file:
        raise click.UsageError(_("SAY_WHICH_FILE", action=action))
    where = NameResolver(session.fermi).project(project)
    if action == "show":
        found = projects.diagnosis_rules(where)
        output.print_result(found, session.form, lambda: [output.make_line(found["text"] or _("NO_RULES"))])
    elif action == "set":
        assert file
        made = projects.set_diagnosis_rules(where, _read_log(file))
        output.print_result(made, session.form, lambda: [output.make_line(_("RULES_SET"))])
    else:
        assert file
        tried = projects.test_diagnosis_rules(where, _read_log(file)[-MAX_LOG_BYTES:], _read_log(own) if own else None)
        output.print_result(tried, session.form, lambda: _render_test(tried))


def _read_log(path: Path) -> str:
    try:
        with click.open_file(str(path), encoding="utf-8", errors="replace") as file:
            text: str = file.read()
    except OSError as error:
        raise click.FileError(str(path), error.strerror or "") from None
    return text


def _render_test(tried: DiagnosisRulesTest) -> Iterator[RenderableType]:
    finding = tried["finding"]
    if finding is None:
        yield output.make_line(_("RULES_FOUND_NOTHING"))
        return
    said = " — ".join(part for part in (tried["exception"], tried["at"]) if part)
    if said:
        yield output.make_line(said)
    yield output.make_heading(f"{tried['rule']}: {finding['message']}" if tried["rule"] else finding["message"])
    yield output.make_line(finding["hint"])
