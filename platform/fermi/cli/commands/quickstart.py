"""Command that shows the common ways to start and the common problems, with commands to copy: `fermi quickstart`."""

import sys
from collections.abc import Sequence
from typing import Any, NamedTuple

import click
from rich.text import Text

from fermi import messages
from fermi.cli import host_checks, output, texts
from fermi.cli.error_handler import EXIT_TRAINING_FAILED
from fermi.cli.options import Session, command
from fermi.cli.texts import _
from fermi.runner.ports import DEFAULT_MASTER_PORT

LEVEL_STYLES = {"pass": "green", "warn": "yellow", "fail": "red"}


class QuickstartEntry(NamedTuple):
    """An entry. `text` has placeholders {host}, {port}, {nodes} and {gpus}."""

    number: int
    id: str
    kind: str
    title: str
    text: str
    checks: Sequence[str]


ENTRY_TEXTS: dict[str, tuple[str, Sequence[str]]] = {
    "single-node": ("scene", ("stack", "memory")),
    "multi-node": ("scene", ("network", "stack")),
    "one-touch": ("scene", ("network",)),
    "torchrun": ("scene", ("port", "stack")),
    "jax": ("scene", ("stack", "memory")),
    "slurm": ("scene", ()),
    "kubernetes": ("scene", ()),
    "platform": ("scene", ()),
    "network": ("fix", ("network",)),
    "port": ("fix", ("port",)),
    "memory": ("fix", ("memory",)),
    "hang": ("fix", ("network",)),
    "nccl": ("fix", ("network",)),
    "resume": ("fix", ()),
    "watch": ("fix", ("memory",)),
}
"""In the order shown: kind, and what --check looks at. The texts are in `messages/<language>/guides.toml`."""


def list_entries(language: str) -> list[QuickstartEntry]:
    texts = messages.load_guide("quickstart", language)
    return [
        QuickstartEntry(number, name, kind, texts[name]["title"], texts[name]["text"], checks)
        for number, (name, (kind, checks)) in enumerate(ENTRY_TEXTS.items(), 1)
    ]


@command("quickstart", _("MORE_QUICKSTART"), output=False)
@click.option("--list", "listed", is_flag=True, help=_("OPTION_LIST"))
@click.option("--show", "shown", metavar="N", help=_("OPTION_SHOW"))
@click.option("--check", is_flag=True, help=_("OPTION_CHECK"))
@click.option("--host", default="127.0.0.1", help=_("OPTION_HOST"))
@click.option("--port", type=click.IntRange(1, 65535), default=DEFAULT_MASTER_PORT, help=_("OPTION_QUICKSTART_PORT"))
@click.option("--nodes", type=click.IntRange(1), default=2, help=_("OPTION_NODES"))
@click.option("--gpus", type=click.IntRange(1), default=4, help=_("OPTION_QUICKSTART_GPUS"))
def quickstart(session: Session, listed: bool, shown: str | None, check: bool, **values: Any) -> int:
    known = list_entries(texts.get_language())
    if shown is not None:
        return _print_entry(_find_entry(shown, known), values, check)
    if listed or not sys.stdin.isatty():
        _print_entries(known)
        return 0
    return _run_menu(known, values)


def _find_entry(given: str, entries: list[QuickstartEntry]) -> QuickstartEntry:
    for entry in entries:
        if given in (str(entry.number), entry.id):
            return entry
    names = ", ".join(f"{entry.number} ({entry.id})" for entry in entries)
    raise click.UsageError(_("NO_SUCH_GUIDE", given=given, names=names))


def _print_entries(entries: list[QuickstartEntry]) -> None:
    for kind, heading in (("scene", _("WAYS_TO_START")), ("fix", _("PROBLEMS_AND_FIXES"))):
        click.echo(f"{heading}\n")
        for entry in entries:
            if entry.kind == kind:
                click.echo(f"  {entry.number:>2}  {entry.id:<14} {entry.title}")
        click.echo("")
    click.echo(_("HOW_TO_SHOW_ONE"))


def _print_entry(entry: QuickstartEntry, values: dict[str, Any], check: bool) -> int:
    click.echo(click.style(entry.title, bold=True) + "\n")
    click.echo(messages.fill_text(entry.id, entry.text.strip("\n"), values))
    return _check_entry(entry, values) if check else 0


def _check_entry(entry: QuickstartEntry, values: dict[str, Any]) -> int:
    looks = host_checks.run_checks([*entry.checks], host_checks.CheckTarget(values["host"], values["port"]))
    out = output.make_console()
    out.print("")
    for look in looks:
        out.print(Text.assemble((f"{look.level:<5}", LEVEL_STYLES[look.level]), f" {look.text}"), soft_wrap=True)
    if not looks:
        click.echo(_("NOTHING_TO_LOOK_AT"))
    return EXIT_TRAINING_FAILED if any(look.level == "fail" for look in looks) else 0


def _run_menu(entries: list[QuickstartEntry], values: dict[str, Any]) -> int:
    """Run the menu until `q` or the end of input."""
    while True:
        _print_entries(entries)
        answer = click.prompt(_("ASK_NUMBER"), default="q", show_default=False).strip()
        if answer == "q":
            return 0
        try:
            entry = _find_entry(answer, entries)
        except click.UsageError as error:
            click.echo(error.message, err=True)
            continue
        values = _prompt_for_values(entry, values)
        click.echo("")
        _print_entry(entry, values, check=False)
        if entry.checks and click.confirm("\n" + _("ASK_LOOK_NOW"), default=True):
            _check_entry(entry, values)
        click.echo("")


def _prompt_for_values(entry: QuickstartEntry, values: dict[str, Any]) -> dict[str, Any]:
    """Prompt for the values that the commands need."""
    questions: dict[str, tuple[str, type]] = {
        "host": (_("ASK_MASTER_ADDRESS"), str),
        "port": (_("ASK_MASTER_PORT"), int),
        "nodes": (_("ASK_NODES"), int),
        "gpus": (_("ASK_GPUS"), int),
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
