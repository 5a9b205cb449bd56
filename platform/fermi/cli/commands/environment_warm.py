"""Commands that keep environments warm, or stop doing so."""

from typing import Any

import click

from fermi.cli import completion, output
from fermi.cli.name_resolution import NameResolver
from fermi.cli.options import Session, command
from fermi.cli.texts import _
from fermi.cli.times import format_time

MODES: dict[str, bool | None] = {"on": True, "off": False, "default": None}


@command("environments warm", _("MORE_ENVIRONMENTS_WARM"))
@click.argument("words", metavar="[ENV...] on|off|default", nargs=-1, required=True,
                shell_complete=completion.complete_environments)  # fmt: skip
@click.option("--project", help=_("OPTION_WARM_PROJECT"), shell_complete=completion.complete_projects)
def warm(session: Session, words: tuple[str, ...], project: str | None) -> None:
    *names, mode = words
    if mode not in MODES or bool(names) == bool(project) or (project and mode == "default"):
        raise click.UsageError(_("SAY_WHAT_IS_WARM"))
    wanted = MODES[mode]
    if project:
        found: Any = session.fermi.projects.set_warm(NameResolver(session.fermi).project(project), bool(wanted))
        output.print_result(found, session.form, lambda: [output.make_pairs([("ID", found["id"]), (_("WARM"), mode)])])
        return
    api = session.fermi.environments
    items: list[Any] = [
        api.update(one, {"warm": wanted}) for one in NameResolver(session.fermi).environments(tuple(names))
    ]
    output.print_result(
        {"items": items, "total": len(items)}, session.form,
        lambda: [output.make_table(["ID", _("NAME"), _("WARM")],
                              [[one["id"], one["name"], warm_text(one["standby"])] for one in items])],
    )  # fmt: skip


def warm_text(standby: Any) -> str:
    """Return what stands by in an environment, with the memory that it holds, or why nothing does."""
    if standby["reason"]:
        return str(standby["reason"]["message"])
    if standby["state"] == "standing":
        memory = (standby["memoryBytes"] or 0) >> 20
        return _("WARM_HOLDS", memory=memory, until=format_time(standby["until"]) or "–")
    said = {
        "off": _("WARM_OFF"), "idle": _("WARM_IDLE"), "importing": _("WARM_IMPORTING"), "engine": _("WARM_ENGINE"),
        "unavailable": _("WARM_UNAVAILABLE"),
    }  # fmt: skip
    return said.get(standby["state"], _("WARM_FAILED"))
