"""Commands for what holds memory in a dev environment, and for freeing it."""

from collections.abc import Iterator
from typing import Any

import click
from rich.console import RenderableType

from fermi.cli import completion, output
from fermi.cli.memory import render_memory_holders
from fermi.cli.name_resolution import NameResolver
from fermi.cli.options import Session, command
from fermi.cli.texts import _


@command("environments memory", _("MORE_ENVIRONMENTS_MEMORY"))
@click.argument("name", metavar="ENV", shell_complete=completion.complete_environments)
@click.option("--end", "kernel", metavar="KERNEL", help=_("OPTION_MEMORY_END"))
@click.option("--ask", is_flag=True, help=_("OPTION_MEMORY_ASK"))
def memory(session: Session, name: str, kernel: str | None, ask: bool) -> None:
    api = session.fermi.environments
    [key] = NameResolver(session.fermi).environments([name])
    if kernel:
        api.end_kernel(key, kernel)
        output.print_message(_("KERNEL_ENDED", kernel=kernel))
    if ask:
        api.ask_owner(key)
        output.print_message(_("OWNER_ASKED", name=name))
    if kernel or ask:
        return
    found: Any = api.memory(key)
    output.print_result(found, session.form, lambda: _render_memory(found))


def _render_memory(found: Any) -> Iterator[RenderableType]:
    if found["reason"]:
        yield output.make_line(found["reason"]["message"], "red")
    elif found["looking"]:
        yield output.make_line(_("MEMORY_NOT_KNOWN_YET"))
    elif not found["processes"]:
        yield output.make_line(_("MEMORY_FREE"))
    yield from render_memory_holders([found])
