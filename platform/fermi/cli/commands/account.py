"""Who speaks to which platform."""

import sys
from collections.abc import Iterator

import click
from rich.console import RenderableType

from fermi.cli import output, texts
from fermi.cli.options import Session, command
from fermi.cli.texts import _
from fermi.client import NoPlatform, config
from fermi.client.client import Fermi
from fermi.client.types import Me


@command("login", _("ADDRESS is the one known here by default. A --lang is remembered too."))
@click.argument("address", required=False)
@click.option("--token", help=_("An API token; - reads it from standard input."))
@click.option("--username", help=_("Sign in with a password instead, which makes a token."))
def login(session: Session, address: str | None, token: str | None, username: str | None) -> None:
    place = config.find(address or session.url)
    if token == "-":
        token = sys.stdin.readline().strip()
    elif username and not token:
        token = _by_password(place.url, username)
    elif not token and not (token := place.token):
        if not sys.stdin.isatty():
            raise click.UsageError(_("Say who you are: --token or --username."))
        token = click.prompt(_("API token (made in the console, under Tokens)"), hide_input=True, err=True)
    with Fermi(place.url, token, lang=texts.language()) as fermi:
        me = fermi.me()
    config.save(config.Config(place.url, token, session.lang or config.load().language))
    output.say(_("Kept in {file}.", file=config.path()))
    output.show(me, session.form, lambda: _person(me, place.url))


def _by_password(url: str, username: str) -> str:
    import platform

    from fermi.client.signin import issue_token

    if sys.stdin.isatty():
        password = click.prompt(_("Password"), hide_input=True, err=True)
    else:
        password = sys.stdin.readline().rstrip("\n")
    name = f"fermi login, {platform.node()}"[:100]
    return issue_token(url, username, password, name, texts.language())


@command("whoami")
def whoami(session: Session) -> None:
    me = session.fermi.me()
    output.show(me, session.form, lambda: _person(me, session.fermi.url))


def _person(me: Me, url: str) -> Iterator[RenderableType]:
    yield output.pairs(
        [
            (_("User"), me["username"]),
            (_("E-mail"), me["email"]),
            (_("Platform"), url),
            (_("Administrator"), me["isAdministrator"] or None),
        ]
    )
    if me["projects"]:
        yield ""
        rows = [[project["id"], project["name"], project["role"]] for project in me["projects"]]
        yield output.table([_("Project"), _("Name"), _("Role")], rows)


@command("version")
def version(session: Session) -> None:
    from importlib.metadata import PackageNotFoundError
    from importlib.metadata import version as installed

    try:
        number = installed("fermi")
    except PackageNotFoundError:
        number = _("not installed: run from its sources")
    try:
        url = config.find(session.url).url
    except NoPlatform:
        url = ""
    data = {"version": number, "url": url or None}
    output.show(data, session.form, lambda: [output.pairs([("fermi", number), (_("Platform"), url)])])
