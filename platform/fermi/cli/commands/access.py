"""Commands that open environments: in the browser, in a shell, for one command."""

import sys
from collections.abc import Callable, Sequence
from typing import Any

import click

from fermi.cli import browser, completion, input_files, output
from fermi.cli.name_resolution import NameResolver
from fermi.cli.options import Session, command
from fermi.cli.texts import _


@command("open", _("MORE_OPEN"))
@click.argument("name", metavar="ENV", shell_complete=completion.complete_environments)
@click.option("--door", help=_("OPTION_OPEN_DOOR"))
@click.option("--path", help=_("OPTION_OPEN_PATH"))
@click.option("--print", "printed", is_flag=True, help=_("OPTION_OPEN_PRINT"))
@click.option("--local", is_flag=False, flag_value=0, type=click.IntRange(0, 65535), metavar="[PORT]",
              help=_("OPTION_OPEN_LOCAL"))  # fmt: skip
def open_door(session: Session, name: str, door: str | None, path: str | None, printed: bool, local: int | None) -> int:
    environment = NameResolver(session.fermi).environment(name)
    if local is not None:
        return _forward_port(session, environment, door, path or "/", local, printed)
    found = session.fermi.environments.door(environment, door=door, path=path)
    output.print_result(found, session.form, lambda: [output.make_line(found["url"])] if printed else [])
    if printed or session.form != "table":
        return 0
    browser.open_proxy_address(session.fermi.url, found["url"], name)
    return 0


def _forward_port(session: Session, environment: str, door: str | None, path: str, local: int, printed: bool) -> int:
    import asyncio

    from fermi.client import channels

    way = session.fermi.environments.channel(environment)
    chosen = door or _find_first_port(session, environment)

    async def until_interrupted() -> None:
        async with channels.listening(
            way, door=chosen, local=local, failed=lambda error: output.print_message(str(error))
        ) as at:
            url = f"http://127.0.0.1:{at}/{path.lstrip('/')}"
            output.print_result({"url": url, "door": chosen}, session.form, lambda: [output.make_line(url)])
            sys.stdout.flush()
            output.print_message(_("TUNNEL_STAYS"))
            if not printed and session.form == "table":
                browser.open_browser(url)
            await asyncio.Event().wait()

    asyncio.run(until_interrupted())
    return 0


def _find_first_port(session: Session, environment: str) -> str:
    found: Any = session.fermi.environments.get(environment)
    doors = (found.get("hosted") or {}).get("doors") or []
    if not doors:
        raise click.UsageError(_("NO_DOORS", name=environment))
    return str(doors[0]["name"])


def _add_command_options(function: Callable[..., Any]) -> Callable[..., Any]:
    for option in reversed(
        [
            click.option("--cwd", metavar="FOLDER", default="", help=_("OPTION_RUN_CWD")),
            click.option("--set-env", "variables", multiple=True, metavar="NAME=VALUE", help=_("OPTION_RUN_SET_ENV")),
            click.argument("words", metavar="[-- COMMAND...]", nargs=-1, type=click.UNPROCESSED),
        ]
    ):
        function = option(function)
    return function


@command("shell", _("MORE_SHELL"), output=False)
@click.argument("name", metavar="ENV|TASK", shell_complete=completion.complete_environments)
@click.option("--rank", type=click.IntRange(0), help=_("OPTION_SHELL_RANK"))
@_add_command_options
def shell(
    session: Session, name: str, rank: int | None, cwd: str, variables: tuple[str, ...], words: Sequence[str]
) -> int:
    from fermi.cli.terminal import attach_command, is_terminal

    is_task = rank is not None or name.startswith("task-")
    if is_task:
        way = session.fermi.tasks.channel(name, rank or 0)
    else:
        way = session.fermi.environments.channel(NameResolver(session.fermi).environment(name))
    env = input_files.parse_settings(variables, "--set-env")
    return attach_command(way, [*words] or None, cwd=cwd, env=env, terminal=is_terminal())


@command("run", _("MORE_RUN"), output=False, allow_interspersed_args=False)
@click.option("--env", "name", metavar="ENV", help=_("OPTION_RUN_ENV"), shell_complete=completion.complete_environments)
@click.option("--no-stdin", is_flag=True, help=_("OPTION_RUN_NO_STDIN"))
@_add_command_options
def run(
    session: Session, name: str | None, no_stdin: bool, cwd: str, variables: tuple[str, ...], words: Sequence[str]
) -> int:
    from fermi.cli.terminal import attach_command

    if not words:
        raise click.UsageError(_("SAY_WHAT_TO_RUN"))
    way = session.fermi.environments.channel(NameResolver(session.fermi).reachable(name))
    env = input_files.parse_settings(variables, "--set-env")
    return attach_command(way, words, cwd=cwd, env=env, reads=not no_stdin)
