"""What every command takes, and what a command gets: a Session."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

import click

from fermi.cli import global_options, texts
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


def command(name: str, more: str = "", *, output: bool = True, **settings: Any) -> Callable[[Function], click.Command]:
    """A command of the registry that knows --url, --lang and, if need be, --output; `more` follows its summary. Of one
    within a group, `name` is both: `environments make`."""

    def decorate(function: Function) -> click.Command:
        own, about = name.rpartition(" ")[2], f"{_(summary(name))}\n\n{more}".strip()
        made: Any = click.command(own, help=about, context_settings=settings)(session(function))
        made.params += global_options.options(_keep, output=output)
        return made

    return decorate


def group(name: str, more: str = "") -> Callable[[Function], click.Group]:
    """A command of the registry that has commands of its own; alone it does what the function does."""

    def decorate(function: Function) -> click.Group:
        about = f"{_(summary(name))}\n\n{more}".strip()
        made: Any = click.group(name, help=about, invoke_without_command=True)(session(function))
        made.params += global_options.options(_keep)
        return made

    return decorate


def _keep(ctx: click.Context, name: str, value: Any) -> None:
    told = global_options.told_before(ctx, name) if value is None else value
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
