"""What the command line of `fermi launch` lacks: prompts in a terminal, elsewhere an error with the complete command
line."""

import shlex
import socket
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

import click

from fermi.cli import global_options
from fermi.cli.texts import _
from fermi.jobs.errors import LaunchError

SCRIPT_NAMES = ("train.py", "scripts/train.py", "main.py")
T = TypeVar("T")
COMMAND_LINE_KEY = f"{__name__}.typed"
LAUNCH_OPTIONS = {"mode", "rank", "world-size", "local-rank", "nnodes", "node-rank", "nproc-per-node", "num-nodes",
       "master-addr", "master-port"}  # fmt: skip
"""Options with which no other command begins."""


def normalize_arguments(ctx: click.Context, arguments: Sequence[str]) -> list[str]:
    """Return the arguments with the command added where it was left out: `fermi --rank 0 --world-size 8` is `fermi
    launch --rank 0 --world-size 8`. Store them for messages."""
    rest = iter(arguments)
    first = next((word for word in rest if not _is_global_option(word, rest)), "")
    name = first.removeprefix("--").partition("=")[0].replace("_", "-")
    line = ["launch", *arguments] if first.startswith("--") and name in LAUNCH_OPTIONS else [*arguments]
    ctx.meta[COMMAND_LINE_KEY] = line
    return line


def _is_global_option(word: str, rest: Iterator[str]) -> bool:
    """Return True for an option that may stand before any command. Its value is consumed from `rest`."""
    known = {name for option in global_options.make_options(global_options.store_option) for name in option.opts}
    if word in known:
        next(rest, "")
    return word.partition("=")[0] in known


def prompt_for_missing(words: Sequence[str], master: bool, is_head: bool) -> tuple[list[str], str]:
    """Return the command and, where `master` is set, the master's address ("" else), asking for what is missing. Raise
    LaunchError where there is no terminal and the command is missing. `is_head`: rank 0 is on this machine."""
    script = next((path for path in SCRIPT_NAMES if Path(path).is_file()), "")
    here = find_own_address() if is_head else ""
    if sys.stdin.isatty():
        command = list(words) or _prompt(_("ASK_COMMAND"), f"python {script}" if script else "", shlex.split)
        return command, _prompt(_("ASK_MASTER_ADDRESS"), here, str) if master else ""
    if words:
        return [*words], ""
    typed = [word for word in click.get_current_context().meta[COMMAND_LINE_KEY] if word != "--"]
    address = ["--master-addr", here or "192.168.1.100"] if master else []
    line = shlex.join(["fermi", *typed, *address, "--", "python", script or SCRIPT_NAMES[0]])
    raise LaunchError("LAUNCH_COMMAND_NEEDED", line=line)


def _prompt(question: str, default: str, read: Callable[[str], T]) -> T:
    while True:
        text = click.prompt(question, default=default or None, err=True)
        try:
            if answer := read(text.strip()):
                return answer
        except ValueError as error:  # quotes that are not closed
            click.echo(f"  {error}", err=True)


def find_own_address() -> str:
    """Return the address by which others on the network reach this machine, by its routes; "" without a route."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # of a datagram socket: nothing is sent, a route is chosen
        except OSError:
            return ""
        return str(probe.getsockname()[0])
