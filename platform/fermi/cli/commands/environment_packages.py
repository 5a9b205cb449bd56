"""Commands for the packages of dev environments: compare and install."""

from collections.abc import Iterator
from typing import Any

import click
from rich.console import RenderableType

from fermi.cli import completion, output
from fermi.cli.name_resolution import NameResolver
from fermi.cli.options import Session, command
from fermi.cli.texts import _
from fermi.cli.times import format_age

MAX_SHOWN_DIFFERENCES = 20
"""Differences of packages that are shown without --all."""
EXIT_FAILED = 1
names_argument = click.argument("names", metavar="ENV...", nargs=-1, required=True,
                                shell_complete=completion.complete_environments)  # fmt: skip
python_option = click.option("--python", default="", metavar="PATH|KERNEL", help=_("OPTION_PACKAGES_PYTHON"))


@command("environments packages", _("MORE_ENVIRONMENTS_PACKAGES"))
@names_argument
@click.option("--all", "whole", is_flag=True, help=_("OPTION_PACKAGES_ALL"))
@click.option("--anew", is_flag=True, help=_("OPTION_PACKAGES_ANEW"))
@python_option
def packages(session: Session, names: tuple[str, ...], whole: bool, anew: bool, python: str) -> int:
    ids = NameResolver(session.fermi).environments(names)
    found: Any = session.fermi.environments.packages(ids, python=python, anew=anew)
    output.print_result(found, session.form, lambda: _render_comparison(found, whole))
    return EXIT_FAILED if any(one["state"] != "known" for one in found["environments"]) else 0


def _render_comparison(found: Any, whole: bool) -> Iterator[RenderableType]:
    known = found["environments"]
    rows: list[list[output.Cell]] = [
        [one["name"], one["version"], one["python"], one["torch"].get("version"),
         one["torch"].get("cuda") or one["torch"].get("hip"), one["torch"].get("nccl"), one["packageCount"] or None,
         format_age(one["lookedAt"]) if one["lookedAt"] else None]
        for one in known
    ]  # fmt: skip
    headers = [_("ENVIRONMENT"), "Python", _("INTERPRETER"), "torch", "CUDA", "NCCL", _("PACKAGES"), _("CHECKED")]
    yield output.make_table(headers, rows)
    for one in known:
        if one["state"] == "failed" and one["reason"]:
            yield output.make_line(one["reason"]["message"], "red")
        elif one["state"] == "looking":
            yield output.make_line(_("PACKAGES_NOT_KNOWN_YET", name=one["name"]))
    differences = found["differences"]
    if len(known) > 1 and not differences and all(one["state"] == "known" for one in known):
        yield output.make_line(_("PACKAGES_ALIKE"))
    shown = differences if whole else _take_first(differences)
    if shown:
        yield output.make_table(
            [_("PACKAGE"), *(one["name"] for one in known), ""],
            [
                [one["name"], *(_format_version(one, key["environmentId"]) for key in known),
                 _("BREAKS_TRAINING") if one["fatal"] else None]
                for one in shown
            ],
            title=_("DIFFERENCES"),
        )  # fmt: skip
    if more := len(differences) - len(shown):
        yield output.make_line(_("PACKAGES_MORE", count=more))
    if installable := [one["requirement"] for one in found["lacking"] if one["requirement"]]:
        words = " ".join(one["environmentId"] for one in known)
        yield output.make_line(
            _("PACKAGES_LEVEL_HINT", count=len(installable), command=f"fermi environments level {words}")
        )


def _take_first(differences: list[Any]) -> list[Any]:
    packages_of = [one for one in differences if one["kind"] == "package"]
    return [one for one in differences if one["kind"] != "package"] + packages_of[:MAX_SHOWN_DIFFERENCES]


def _format_version(one: Any, environment: str) -> str | None:
    return one["values"].get(environment) or None


@command("environments level", _("MORE_ENVIRONMENTS_LEVEL"))
@names_argument
@click.option("--package", "wanted", multiple=True, metavar="REQUIREMENT", help=_("OPTION_LEVEL_PACKAGE"))
@python_option
@click.option("-y", "--yes", is_flag=True, help=_("OPTION_YES"))
def level(session: Session, names: tuple[str, ...], wanted: tuple[str, ...], python: str, yes: bool) -> int:
    api = session.fermi.environments
    ids = NameResolver(session.fermi).environments(names)
    if not wanted:
        found: Any = api.packages(ids, python=python, anew=True)
        if unknown := [one for one in found["environments"] if one["state"] != "known"]:
            for one in unknown:
                output.print_error(one["reason"]["message"] if one["reason"] else _("PACKAGES_NOT_KNOWN_YET", **one))
            return EXIT_FAILED
        wanted = tuple(one["requirement"] for one in found["lacking"] if one["requirement"])
        if left := [one["name"] for one in found["lacking"] if not one["requirement"]]:
            output.print_message(_("PACKAGES_LEFT_ALONE", names=", ".join(left)))
        if not wanted:
            output.print_message(_("PACKAGES_LEVEL_ALREADY"))
            return 0
    if not yes:
        text = _("ASK_LEVEL", packages=" ".join(wanted), names=", ".join(names))
        click.confirm(text, abort=True, err=True)
    ended: Any = api.level(
        ids, wanted, python=python, seen=lambda one: output.print_message(_describe_installation(one))
    )
    output.print_result(ended, session.form, lambda: _render_installations(ended))
    return EXIT_FAILED if any(one["state"] != "done" for one in ended["items"]) else 0


def _describe_installation(one: Any) -> str:
    return _("PACKAGES_INSTALLATION_IS", name=one["name"], state=one["state"])


def _render_installations(ended: Any) -> Iterator[RenderableType]:
    for one in ended["items"]:
        yield output.make_heading(f"{one['name']}: {one['state']}")
        if one["output"]:
            yield output.make_line(one["output"].rstrip("\n"))
        if one["reason"]:
            yield output.make_line(one["reason"]["message"], "red")
            if one["reason"]["hint"]:
                yield output.make_line(f"→ {one['reason']['hint']}")
