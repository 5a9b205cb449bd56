"""`fermi`: finds the command and imports no module of the others.

Exit codes: 0 done; 1 the training that was waited for failed or was stopped; 2 bad usage or a refused request; 3 not
signed in, or not allowed; 4 not found; 5 the platform cannot be reached or does not work; 130 Ctrl-C.
"""

import os
import sys
from collections.abc import Sequence
from importlib import import_module

import click
from click.shell_completion import CompletionItem

from fermi.cli import global_options, texts
from fermi.cli.registry import COMMANDS, make_summary_code
from fermi.cli.texts import _

PIPE_CLOSED = 141  # what a shell reports for a process that SIGPIPE ended


class LazyGroup(click.Group):
    """click group that imports a command's module on use."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        from fermi.cli import prompts

        return super().parse_args(ctx, prompts.normalize_arguments(ctx, args))

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        entry = COMMANDS.get(name)
        return getattr(import_module(f"fermi.cli.commands.{entry.module}"), entry.name) if entry else None

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Return completions from the commands' summaries, so that no module is imported for it."""
        return [
            *(
                CompletionItem(name, help=_(make_summary_code(name)))
                for name in COMMANDS
                if name.startswith(incomplete)
            ),
            *click.Command.shell_complete(self, ctx, incomplete),
        ]

    def invoke(self, ctx: click.Context) -> int | None:
        try:
            return super().invoke(ctx)
        except BrokenPipeError:  # the reader went away: `fermi logs … | head`
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            ctx.exit(PIPE_CLOSED)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section(_("COMMANDS")):
            formatter.write_dl([(name, _(make_summary_code(name))) for name in COMMANDS])


def make_group() -> click.Group:
    """Return the group of all commands, built for each run in the language chosen for it."""
    return LazyGroup(
        "fermi",
        help=_("FERMI_SUMMARY"),
        epilog=_("FERMI_EPILOG"),
        params=[*global_options.make_options(global_options.store_option)],
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    )


def run_command(arguments: Sequence[str]) -> int:
    """Run one command and return the exit code. A command returns its own, or None for 0."""
    texts.set_language(texts.choose_language(arguments))
    try:
        return make_group().main([*arguments], "fermi", standalone_mode=False) or 0
    except BaseException as error:
        from fermi.cli.error_handler import report_error

        return report_error(error)


def main() -> None:
    sys.exit(run_command(sys.argv[1:]))
