"""Commands for signing in to a platform, and for showing as whom one is signed in."""

import sys
from collections.abc import Iterator

import click
from rich.console import RenderableType

from fermi.cli import output, texts
from fermi.cli.options import Session, command
from fermi.cli.texts import _
from fermi.client import NoPlatformError, config
from fermi.client.client import Fermi
from fermi.client.types import Me


@command("login", _("MORE_LOGIN"))
@click.argument("address", required=False)
@click.option("--token", help=_("OPTION_ACCOUNT_TOKEN"))
@click.option("--username", help=_("OPTION_USERNAME"))
def login(session: Session, address: str | None, token: str | None, username: str | None) -> None:
    place = config.find_endpoint(address or session.url)
    if token == "-":
        token = sys.stdin.readline().strip()
    elif username and not token:
        token = _sign_in_with_password(place.url, username)
    elif not token and not (token := place.token):
        if not sys.stdin.isatty():
            raise click.UsageError(_("SAY_WHO_YOU_ARE"))
        token = click.prompt(_("ASK_API_TOKEN"), hide_input=True, err=True)
    with Fermi(place.url, token, lang=texts.get_language()) as fermi:
        me = fermi.me()
    config.save_config(config.Config(place.url, token, session.lang or config.load_config().language))
    output.print_message(_("KEPT_IN_FILE", file=config.get_config_path()))
    output.print_result(me, session.form, lambda: _render_user(me, place.url))


def _sign_in_with_password(url: str, username: str) -> str:
    import platform

    from fermi.client.login import issue_token

    if sys.stdin.isatty():
        password = click.prompt(_("PASSWORD"), hide_input=True, err=True)
    else:
        password = sys.stdin.readline().rstrip("\n")
    name = f"fermi login, {platform.node()}"[:100]
    return issue_token(url, username, password, name, texts.get_language())


@command("whoami")
def whoami(session: Session) -> None:
    me = session.fermi.me()
    output.print_result(me, session.form, lambda: _render_user(me, session.fermi.url))


def _render_user(me: Me, url: str) -> Iterator[RenderableType]:
    yield output.make_pairs(
        [
            (_("USER"), me["username"]),
            (_("E_MAIL"), me["email"]),
            (_("PLATFORM"), url),
            (_("ADMINISTRATOR"), me["isAdministrator"] or None),
        ]
    )
    if me["projects"]:
        yield ""
        rows = [[project["id"], project["name"], project["role"]] for project in me["projects"]]
        yield output.make_table([_("PROJECT"), _("NAME"), _("ROLE")], rows)


@command("version")
def version(session: Session) -> None:
    from importlib.metadata import PackageNotFoundError
    from importlib.metadata import version as installed

    try:
        number = installed("fermi-training")
    except PackageNotFoundError:
        number = _("RUN_FROM_SOURCES")
    try:
        url = config.find_endpoint(session.url).url
    except NoPlatformError:
        url = ""
    data = {"version": number, "url": url or None}
    output.print_result(data, session.form, lambda: [output.make_pairs([("fermi", number), (_("PLATFORM"), url)])])
