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
@click.option("--device", is_flag=True, help=_("OPTION_DEVICE"))
def login(session: Session, address: str | None, token: str | None, username: str | None, device: bool) -> None:
    place = config.find_endpoint(address or session.url)
    if token == "-":
        token = sys.stdin.readline().strip()
    elif username and not token:
        token = _sign_in_with_password(place.url, username)
    elif device:
        token = _sign_in_by_code(place.url)
    elif not token and not (token := place.token):
        if not sys.stdin.isatty():
            raise click.UsageError(_("SAY_WHO_YOU_ARE"))
        token = _sign_in_in_browser(place.url)
    with Fermi(place.url, token, lang=texts.get_language()) as fermi:
        me = fermi.me()
    config.save_config(config.Config(place.url, token, session.lang or config.load_config().language))
    output.print_message(_("KEPT_IN_FILE", file=config.get_config_path()))
    output.print_result(me, session.form, lambda: _render_user(me, place.url))


def _sign_in_with_password(url: str, username: str) -> str:
    import platform

    from fermi.client.login import issue_token, read_banner

    banner = read_banner(url, texts.get_language())
    accepted = 0
    if banner:
        output.print_message(f"{banner['title']}\n\n{banner['text']}\n")
        if banner["required"]:
            accepted = banner["version"]
            if not sys.stdin.isatty():
                raise click.UsageError(_("BANNER_NEEDS_TERMINAL"))
            click.confirm(_("ACCEPT_BANNER"), abort=True, err=True)
    if sys.stdin.isatty():
        password = click.prompt(_("PASSWORD"), hide_input=True, err=True)
    else:
        password = sys.stdin.readline().rstrip("\n")
    name = f"fermi login, {platform.node()}"[:100]
    return issue_token(url, username, password, name, texts.get_language(), accepted)


def _sign_in_in_browser(url: str) -> str:
    """Return a token that the person approves in a browser here, or by a code where none can be started."""
    import webbrowser

    from fermi.cli.browser import open_or_print
    from fermi.client.oauth import sign_in_in_browser

    try:
        webbrowser.get()
    except webbrowser.Error:
        return _sign_in_by_code(url)
    output.print_message(_("SIGN_IN_BROWSER_OPENED", url=url))
    return sign_in_in_browser(url, open_or_print)


def _sign_in_by_code(url: str) -> str:
    from fermi.client.oauth import begin_device_sign_in, wait_for_device_sign_in

    prompt = begin_device_sign_in(url)
    minutes = max(1, round(prompt.expires_in / 60))
    output.print_message(_("SIGN_IN_BY_CODE", address=prompt.address, digits=prompt.user_code, minutes=minutes))
    return wait_for_device_sign_in(url, prompt)


@command("logout", output=False)
def logout(session: Session) -> None:
    from fermi.client.oauth import revoke_token

    kept = config.load_config()
    if not kept.token:
        output.print_message(_("NOT_SIGNED_IN_HERE"))
        return
    revoke_token(kept.url, kept.token)
    config.save_config(config.Config(kept.url, "", kept.language))
    output.print_message(_("SIGNED_OUT", url=kept.url))


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
