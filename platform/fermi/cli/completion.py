"""Shell completion of names. Without a reachable platform it offers nothing and reports no error."""

from collections.abc import Callable, Iterable
from typing import Any

import click
from click.shell_completion import CompletionItem

TIMEOUT_SECONDS = 3.0

CompletionCallback = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]


def _complete_names(list_of: Callable[[Any], Iterable[Any]]) -> CompletionCallback:
    def complete(_ctx: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
        from fermi.client import Fermi, FermiError

        try:
            with Fermi(timeout=TIMEOUT_SECONDS, retries=0) as fermi:
                found = list(list_of(fermi))
        except FermiError:
            return []
        fitting = [one for one in found if one["name"].startswith(incomplete) or one["id"].startswith(incomplete)]
        return [
            CompletionItem(one["name" if one["name"].startswith(incomplete) else "id"], help=one["id"])
            for one in fitting
        ]

    return complete


complete_environments = _complete_names(lambda fermi: fermi.environments.list())
complete_templates = _complete_names(lambda fermi: fermi.environment_templates.list())
complete_projects = _complete_names(lambda fermi: fermi.projects.list())
