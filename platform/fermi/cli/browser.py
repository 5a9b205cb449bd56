"""Opens addresses in the browser of this machine."""

from urllib.parse import urlsplit

import click

from fermi.cli import output
from fermi.cli.texts import _

LOOPBACK_NAMES = ("localhost", "127.0.0.1", "::1")


def open_proxy_address(platform: str, url: str, name: str) -> None:
    """Open a proxy address, and report where a browser on this machine cannot reach it. `platform`: the platform's
    address; `name`: the environment's."""
    if (why := _explain_unreachable(platform, url)) is not None:
        output.print_message(_("DOOR_OUT_OF_REACH", host=urlsplit(url).hostname, why=why, name=name))
    open_or_print(url)


def open_or_print(url: str) -> None:
    """Open an address, or print it where no browser can be started."""
    if not open_browser(url):
        output.print_message(_("NO_BROWSER_HERE"))
        click.echo(url)


def open_browser(url: str) -> bool:
    """Open an address in a browser, and return whether that could be done."""
    import webbrowser

    try:
        return webbrowser.open(url)
    except webbrowser.Error:
        return False


def _explain_unreachable(platform: str, url: str) -> str | None:
    """Return why a browser on this machine could not reach the address, as far as its name tells; an empty string
    otherwise."""
    import socket

    host = urlsplit(url).hostname or ""
    if host.endswith(".localhost"):  # browsers resolve these themselves, to this machine
        return None if urlsplit(platform).hostname in LOOPBACK_NAMES else _("PLATFORM_IS_ELSEWHERE")
    try:
        socket.getaddrinfo(host, None)
    except OSError as error:
        return error.strerror or str(error)
    return None
