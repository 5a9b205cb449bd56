"""Options of every command, and the Session that a command receives."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

import click

from fermi.cli import global_options, texts
from fermi.cli.registry import COMMANDS, make_summary_code
from fermi.cli.texts import _
from fermi.client.client import Fermi

Function = TypeVar("Function", bound=Callable[..., Any])


@dataclass
class Session:
    """What a command receives. `form` is table, json or yaml; `lang` is set by --lang only. The client is created on
    first use."""

    form: str = "table"
    url: str | None = None
    lang: str | None = None

    @cached_property
    def fermi(self) -> Fermi:
        return Fermi(self.url, lang=texts.get_language())


pass_session = click.make_pass_decorator(Session, ensure=True)
"""Decorator that passes the session as the first argument."""


def command(
    name: str, more: str = "", *, output: bool = True, kind: type[click.Command] = click.Command, **settings: Any
) -> Callable[[Function], click.Command]:
    """Return a decorator that makes a registered command with --url, --lang and, if `output`, --output; `more` follows
    its summary. `name` of a command within a group names both: `environments make`."""

    def decorate(function: Function) -> click.Command:
        own, about = name.rpartition(" ")[2], f"{_(make_summary_code(name))}\n\n{more}".strip()
        made: Any = click.command(own, kind, help=about, epilog=_format_example(name), context_settings=settings)(
            pass_session(function)
        )
        made.params += global_options.make_options(_store_option, output=output)
        return made

    return decorate


def group(name: str, more: str = "") -> Callable[[Function], click.Group]:
    """Return a decorator that makes a registered command with subcommands; without one it runs the function."""

    def decorate(function: Function) -> click.Group:
        about = f"{_(make_summary_code(name))}\n\n{more}".strip()
        made: Any = click.group(name, help=about, epilog=_format_example(name), invoke_without_command=True)(
            pass_session(function)
        )
        made.params += global_options.make_options(_store_option)
        return made

    return decorate


def _format_example(name: str) -> str | None:
    entry = COMMANDS.get(name)
    return f"$ {entry.example}" if entry and entry.example else None


def _store_option(ctx: click.Context, name: str, value: Any) -> None:
    told = global_options.get_stored_option(ctx, name) if value is None else value
    if told is not None:
        setattr(ctx.ensure_object(Session), name, told)


def add_follow_options(function: Function) -> Function:
    """Add --wait and --follow."""
    for option in (
        click.option("--follow", is_flag=True, help=_("OPTION_OPTIONS_FOLLOW")),
        click.option("--wait", is_flag=True, help=_("OPTION_OPTIONS_WAIT")),
    ):
        function = option(function)
    return function
