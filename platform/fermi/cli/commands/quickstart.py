"""The common ways to start and the common problems, with commands ready to be copied: `fermi quickstart`."""

import sys
import tomllib
from functools import cache
from importlib import resources
from typing import Any, NamedTuple

import click
from rich.text import Text

from fermi.cli import checks, output, texts
from fermi.cli.failures import TRAINING_FAILED
from fermi.cli.options import Session, command
from fermi.cli.texts import _
from fermi.runner.ports import MASTER_PORT

STYLES = {"pass": "green", "warn": "yellow", "fail": "red"}


class Entry(NamedTuple):
    """`text` has places for {host}, {port}, {nodes} and {gpus}."""

    number: int
    id: str
    kind: str
    title: str
    text: str
    checks: list[str]


@cache
def entries(language: str) -> list[Entry]:
    found = tomllib.loads(resources.files("fermi.cli").joinpath("quickstart.toml").read_text("utf-8"))
    return [
        Entry(number, name, item["kind"], item[language]["title"], item[language]["text"], item.get("checks", []))
        for number, (name, item) in enumerate(found.items(), 1)
    ]


@command("quickstart", _("Without options a menu; --list and --show need no terminal."), output=False)
@click.option("--list", "listed", is_flag=True, help=_("List what there is."))
@click.option("--show", "shown", metavar="N", help=_("Show one, by its number or name."))
@click.option("--check", is_flag=True, help=_("With --show: look at this machine, too; exit code 1 if that fails."))
@click.option("--host", default="127.0.0.1", help=_("The master's address, for the commands shown."))
@click.option("--port", type=click.IntRange(1, 65535), default=MASTER_PORT, help=_("The master's port."))
@click.option("--nodes", type=click.IntRange(1), default=2, help=_("How many nodes there are."))
@click.option("--gpus", type=click.IntRange(1), default=4, help=_("GPUs of each node."))
def quickstart(session: Session, listed: bool, shown: str | None, check: bool, **values: Any) -> int:
    known = entries(texts.language())
    if shown is not None:
        return _show(_find(shown, known), values, check)
    if listed or not sys.stdin.isatty():
        _list(known)
        return 0
    return _menu(known, values)


def _find(given: str, known: list[Entry]) -> Entry:
    for entry in known:
        if given in (str(entry.number), entry.id):
            return entry
    names = ", ".join(f"{entry.number} ({entry.id})" for entry in known)
    raise click.UsageError(_("There is no {given}; there are {names}", given=given, names=names))


def _list(known: list[Entry]) -> None:
    for kind, heading in (("scene", _("Ways to start")), ("fix", _("Problems and fixes"))):
        click.echo(f"{heading}\n")
        for entry in known:
            if entry.kind == kind:
                click.echo(f"  {entry.number:>2}  {entry.id:<14} {entry.title}")
        click.echo("")
    click.echo(_("Show one: fermi quickstart --show N"))


def _show(entry: Entry, values: dict[str, Any], check: bool) -> int:
    click.echo(click.style(entry.title, bold=True) + "\n")
    click.echo(entry.text.strip().format_map(values))
    return _check(entry, values) if check else 0


def _check(entry: Entry, values: dict[str, Any]) -> int:
    looks = checks.run(entry.checks, checks.Where(values["host"], values["port"]))
    out = output.console()
    out.print("")
    for look in looks:
        out.print(Text.assemble((f"{look.level:<5}", STYLES[look.level]), f" {look.text}"), soft_wrap=True)
    if not looks:
        click.echo(_("There is nothing to look at here."))
    return TRAINING_FAILED if any(look.level == "fail" for look in looks) else 0


def _menu(known: list[Entry], values: dict[str, Any]) -> int:
    """Until q, or the end of input."""
    while True:
        _list(known)
        answer = click.prompt(_("Number (q: quit)"), default="q", show_default=False).strip()
        if answer == "q":
            return 0
        try:
            entry = _find(answer, known)
        except click.UsageError as error:
            click.echo(error.message, err=True)
            continue
        values = _asked(entry, values)
        click.echo("")
        _show(entry, values, check=False)
        if entry.checks and click.confirm("\n" + _("Look at this machine now?"), default=True):
            _check(entry, values)
        click.echo("")


def _asked(entry: Entry, values: dict[str, Any]) -> dict[str, Any]:
    """What the commands need to be complete."""
    questions: dict[str, tuple[str, type]] = {
        "host": (_("The master's address"), str),
        "port": (_("The master's port"), int),
        "nodes": (_("Number of nodes"), int),
        "gpus": (_("GPUs of each node"), int),
    }
    wanted = {name for name in questions if f"{{{name}}}" in entry.text}
    if {"port", "network"} & {*entry.checks}:
        wanted.add("port")
    if "network" in entry.checks:
        wanted.add("host")
    return {
        name: click.prompt(questions[name][0], default=value, type=questions[name][1]) if name in wanted else value
        for name, value in values.items()
    }
