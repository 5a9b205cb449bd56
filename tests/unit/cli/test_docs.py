"""docs/cli.md says nothing that the command would not understand."""

import re
import shlex
from pathlib import Path

import click
import pytest

from fermi.cli.main import group
from fermi.cli.registry import COMMANDS

ROOT = Path(__file__).resolve().parents[3]
TEXT = (ROOT / "docs" / "cli.md").read_text("utf-8")


def examples() -> list[list[str]]:
    """The arguments of every `fermi …` in a console block, without comments and redirections."""
    found = []
    for line in re.findall(r"^\$ (.*)$", TEXT, re.MULTILINE):
        for part in line.split(" | "):
            words = shlex.split(re.split(r" [<>] ", part)[0], comments=True)
            if words[0] == "fermi":
                found.append(words[1:])
    return found


@pytest.mark.parametrize("arguments", examples(), ids=" ".join)
def test_an_example_is_understood(arguments: list[str]) -> None:
    name, *rest = arguments
    command = group().get_command(click.Context(group()), name)
    assert command is not None
    command.make_context(name, rest)


def test_every_command_has_an_example() -> None:
    assert {arguments[0] for arguments in examples()} == set(COMMANDS)
