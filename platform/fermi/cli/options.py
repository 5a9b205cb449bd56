"""What every command takes, and what a command gets: a Session."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

import click

from fermi.cli import everywhere, texts
from fermi.cli.registry import summary
from fermi.cli.texts import _
from fermi.client.client import Fermi

Function = TypeVar("Function", bound=Callable[..., Any])


@dataclass
class Session:
    """`form` is table, json or yaml; `lang` only what --lang said. The platform is looked for on first use."""

    form: str = "table"
    url: str | None = None
    lang: str | None = None

    @cached_property
    def fermi(self) -> Fermi:
        return Fermi(self.url, lang=texts.language())


session = click.make_pass_decorator(Session, ensure=True)
"""Gives a command the session as its first argument."""


def command(name: str, more: str = "", *, output: bool = True) -> Callable[[Function], click.Command]:
    """A command of the registry that knows --url, --lang and, if need be, --output; `more` follows its summary."""

    def decorate(function: Function) -> click.Command:
        made: Any = click.command(name, help=f"{_(summary(name))}\n\n{more}".strip())(session(function))
        made.params += everywhere.options(_keep, output=output)
        return made

    return decorate


def _keep(ctx: click.Context, name: str, value: Any) -> None:
    told = everywhere.told_before(ctx, name) if value is None else value
    if told is not None:
        setattr(ctx.ensure_object(Session), name, told)


def follow_options(function: Function) -> Function:
    """--wait and --follow."""
    for option in (
        click.option("--follow", is_flag=True, help=_("OPTION_OPTIONS_FOLLOW")),
        click.option("--wait", is_flag=True, help=_("OPTION_OPTIONS_WAIT")),
    ):
        function = option(function)
    return function
