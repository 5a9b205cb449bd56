"""What dev environments have installed: compared, and levelled."""

from collections.abc import Iterator
from typing import Any

import click
from rich.console import RenderableType

from fermi.cli import completion, output
from fermi.cli.name_resolution import Names
from fermi.cli.options import Session, command
from fermi.cli.texts import _
from fermi.cli.times import ago

FEW = 20
"""Differences of packages that are shown without --all."""
FAILED = 1
names_argument = click.argument("names", metavar="ENV...", nargs=-1, required=True,
                                shell_complete=completion.environments)  # fmt: skip
python_option = click.option("--python", default="", metavar="PATH|KERNEL", help=_("OPTION_PACKAGES_PYTHON"))


@command("environments packages", _("MORE_ENVIRONMENTS_PACKAGES"))
@names_argument
@click.option("--all", "whole", is_flag=True, help=_("OPTION_PACKAGES_ALL"))
@click.option("--anew", is_flag=True, help=_("OPTION_PACKAGES_ANEW"))
@python_option
def packages(session: Session, names: tuple[str, ...], whole: bool, anew: bool, python: str) -> int:
    ids = Names(session.fermi).environments(names)
    found: Any = session.fermi.environments.packages(ids, python=python, anew=anew)
    output.show(found, session.form, lambda: _compared(found, whole))
    return FAILED if any(one["state"] != "known" for one in found["environments"]) else 0


def _compared(found: Any, whole: bool) -> Iterator[RenderableType]:
    known = found["environments"]
    rows: list[list[output.Cell]] = [
        [one["name"], one["version"], one["python"], one["torch"].get("version"),
         one["torch"].get("cuda") or one["torch"].get("hip"), one["torch"].get("nccl"), one["packageCount"] or None,
         ago(one["lookedAt"]) if one["lookedAt"] else None]
        for one in known
    ]  # fmt: skip
    headers = [_("ENVIRONMENT"), "Python", _("INTERPRETER"), "torch", "CUDA", "NCCL", _("PACKAGES"), _("CHECKED")]
    yield output.table(headers, rows)
    for one in known:
        if one["state"] == "failed" and one["reason"]:
            yield output.line(one["reason"]["message"], "red")
        elif one["state"] == "looking":
            yield output.line(_("PACKAGES_NOT_KNOWN_YET", name=one["name"]))
    differences = found["differences"]
    if len(known) > 1 and not differences and all(one["state"] == "known" for one in known):
        yield output.line(_("PACKAGES_ALIKE"))
    shown = differences if whole else _first(differences)
    if shown:
        yield output.table(
            [_("PACKAGE"), *(one["name"] for one in known), ""],
            [
                [one["name"], *(_version(one, key["environmentId"]) for key in known),
                 _("BREAKS_TRAINING") if one["fatal"] else None]
                for one in shown
            ],
            title=_("DIFFERENCES"),
        )  # fmt: skip
    if more := len(differences) - len(shown):
        yield output.line(_("PACKAGES_MORE", count=more))
    if installable := [one["requirement"] for one in found["lacking"] if one["requirement"]]:
        words = " ".join(one["environmentId"] for one in known)
        yield output.line(_("PACKAGES_LEVEL_HINT", count=len(installable), command=f"fermi environments level {words}"))


def _first(differences: list[Any]) -> list[Any]:
    packages_of = [one for one in differences if one["kind"] == "package"]
    return [one for one in differences if one["kind"] != "package"] + packages_of[:FEW]


def _version(one: Any, environment: str) -> str | None:
    return one["values"].get(environment) or None


@command("environments level", _("MORE_ENVIRONMENTS_LEVEL"))
@names_argument
@click.option("--package", "wanted", multiple=True, metavar="REQUIREMENT", help=_("OPTION_LEVEL_PACKAGE"))
@python_option
@click.option("-y", "--yes", is_flag=True, help=_("OPTION_YES"))
def level(session: Session, names: tuple[str, ...], wanted: tuple[str, ...], python: str, yes: bool) -> int:
    api = session.fermi.environments
    ids = Names(session.fermi).environments(names)
    if not wanted:
        found: Any = api.packages(ids, python=python, anew=True)
        if unknown := [one for one in found["environments"] if one["state"] != "known"]:
            for one in unknown:
                output.fault(one["reason"]["message"] if one["reason"] else _("PACKAGES_NOT_KNOWN_YET", **one))
            return FAILED
        wanted = tuple(one["requirement"] for one in found["lacking"] if one["requirement"])
        if left := [one["name"] for one in found["lacking"] if not one["requirement"]]:
            output.say(_("PACKAGES_LEFT_ALONE", names=", ".join(left)))
        if not wanted:
            output.say(_("PACKAGES_LEVEL_ALREADY"))
            return 0
    if not yes:
        text = _("ASK_LEVEL", packages=" ".join(wanted), names=", ".join(names))
        click.confirm(text, abort=True, err=True)
    ended: Any = api.level(ids, wanted, python=python, seen=lambda one: output.say(_said(one)))
    output.show(ended, session.form, lambda: _ended(ended))
    return FAILED if any(one["state"] != "done" for one in ended["items"]) else 0


def _said(one: Any) -> str:
    return _("PACKAGES_INSTALLATION_IS", name=one["name"], state=one["state"])


def _ended(ended: Any) -> Iterator[RenderableType]:
    for one in ended["items"]:
        yield output.heading(f"{one['name']}: {one['state']}")
        if one["output"]:
            yield output.line(one["output"].rstrip("\n"))
        if one["reason"]:
            yield output.line(one["reason"]["message"], "red")
            if one["reason"]["hint"]:
                yield output.line(f"→ {one['reason']['hint']}")
