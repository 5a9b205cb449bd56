"""Options that are accepted before and after a command, with one meaning; the one after wins. Imports nothing that is
slow."""

from collections.abc import Callable
from typing import Any

import click

from fermi.cli.texts import _
from fermi.messages.languages import LANGUAGES

OUTPUT_FORMATS = ("table", "json", "yaml")


def make_options(keep: Callable[[click.Context, str, Any], None], *, output: bool = True) -> list[click.Option]:
    """Return the options. `keep` is called with each one's name (`form`, `url`, `lang`) and its value, None where it is
    not given."""

    def kept_as(name: str) -> Callable[[click.Context, click.Parameter, Any], None]:
        return lambda ctx, _parameter, value: keep(ctx, name, value)

    form = click.Option(
        ["-o", "--output"],
        type=click.Choice(OUTPUT_FORMATS),
        help=_("OPTION_EVERYWHERE_OUTPUT"),
        expose_value=False,
        callback=kept_as("form"),
    )
    return [
        *([form] if output else []),
        click.Option(
            ["--url"],
            metavar="ADDRESS",
            help=_("OPTION_URL"),
            expose_value=False,
            callback=kept_as("url"),
        ),
        click.Option(
            ["--lang"],
            type=click.Choice([*LANGUAGES]),
            help=_("OPTION_LANG"),
            expose_value=False,
            callback=kept_as("lang"),
        ),
    ]


def store_option(ctx: click.Context, name: str, value: Any) -> None:
    """Store an option that stands before the command."""
    ctx.meta[f"{__name__}.{name}"] = value


def get_stored_option(ctx: click.Context, name: str) -> Any:
    """Return a stored option, None where it was not given."""
    return ctx.meta.get(f"{__name__}.{name}")
