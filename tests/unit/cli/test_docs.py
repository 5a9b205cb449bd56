"""The pages about the commands say nothing that the commands would not understand."""

import re
import shlex
from importlib import import_module
from pathlib import Path

import click
import pytest

from fermi.cli import prompts
from fermi.cli.main import make_group
from fermi.cli.registry import COMMANDS, SUBCOMMANDS

ROOT = Path(__file__).resolve().parents[3]
CLI, BY_HAND, QUICK, TROUBLE = (
    (ROOT / "docs" / name).read_text("utf-8")
    for name in ("cli.md", "manual-launch.md", "quick-start.md", "troubleshooting.md")
)


def commands(text: str) -> list[list[str]]:
    """The words of every command in a console block, without comments and redirections."""
    lines = re.findall(r"^\$ (.*)$", text, re.MULTILINE)
    parts = [re.split(r" [<>] ", part)[0] for line in lines for part in line.split(" | ")]
    return [shlex.split(part, comments=True) for part in parts]


def in_tables(text: str) -> list[list[str]]:
    """The words of every whole command in the last cell of a table's row."""
    cells = [line.rstrip(" |").rpartition(" | ")[2] for line in text.splitlines() if line.startswith("|")]
    spans = [span for cell in cells for span in re.findall(r"`([^`]+)`", cell)]
    return [shlex.split(re.sub(r"^\w+=\S+ ", "", span)) for span in spans if " -" in span]


def examples(text: str) -> list[list[str]]:
    """The arguments of every `fermi …`."""
    named = [[Path(word).name if word.endswith("/fermi") else word for word in words] for words in commands(text)]
    return [words[words.index("fermi") + 1 :] for words in named if words[0] in ("fermi", "srun")]


def in_text(text: str) -> list[list[str]]:
    """The arguments of every `fermi …` that has any, wherever a sentence or a table has it."""
    spans = [shlex.split(span) for span in re.findall(r"`fermi ([^`…]+ [^`…]+)`", text)]
    return [words for words in spans if words[0] in COMMANDS]


TABLES = [words for words in in_tables(BY_HAND) if words[0] in ("fermi", "python", "torchrun")]
TRAINERS = [words for words in TABLES if "fermi.train.train_ddp" in words or "fermi.train.train_jax" in words]
HERE = [words[1:] for words in TABLES if words[0] == "fermi" and words[1] != "preflight"]
DECLARED = [shlex.split(entry.example)[1:] for entry in COMMANDS.values() if entry.example]
MENTIONED = DECLARED + examples(CLI) + examples(BY_HAND) + HERE + examples(QUICK) + in_text(TROUBLE)


@pytest.mark.parametrize("words", TRAINERS, ids=" ".join)
def test_trainers_accept_the_commands_of_the_tables(words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    place = next(index for index, word in enumerate(words) if word.startswith("fermi.train."))
    trainer = import_module(words[place])
    assert trainer.parse_args(words[place + 1 :]).train_data_path == "train.bin"


def test_the_tables_have_commands_of_each_kind() -> None:
    assert {words[0] for words in TABLES} == {"fermi", "python", "torchrun"}
    assert len(TRAINERS) >= 12
    assert {words[0] for words in HERE} >= {"launch", "render", "quickstart"}


@pytest.mark.parametrize("arguments", MENTIONED, ids=" ".join)
def test_an_example_is_valid(arguments: list[str]) -> None:
    above = click.Context(make_group())
    name, *rest = prompts.normalize_arguments(above, arguments)
    command = make_group().get_command(above, name)
    assert command is not None
    understood(command, name, rest)


def understood(command: click.Command, name: str, arguments: list[str]) -> None:
    context = command.make_context(name, arguments)
    if isinstance(command, click.Group) and context._protected_args:
        own, inner, rest = command.resolve_command(context, [*context._protected_args, *context.args])
        assert own is not None
        assert inner is not None
        understood(inner, own, rest)


def test_help_shows_the_example_of_a_command() -> None:
    command = make_group().get_command(click.Context(make_group()), "doctor")
    assert command is not None
    assert COMMANDS["doctor"].example in command.get_help(click.Context(command))


def test_every_command_has_an_example() -> None:
    assert {arguments[0] for arguments in DECLARED + examples(CLI)} == set(COMMANDS)
    assert [name for name, entry in COMMANDS.items() if entry.example and f"`{entry.example}`" not in CLI] == []
    for name, inner in SUBCOMMANDS.items():
        assert {words[1] for words in examples(CLI) if words[0] == name and len(words) > 1} >= set(inner)
