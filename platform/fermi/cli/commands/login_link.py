"""Command that prints a one-time sign-in link, for the person who runs the platform, on the platform's own machine."""

import os

import click

from fermi.cli import output
from fermi.cli.error_handler import EXIT_NOT_FOUND
from fermi.cli.manage import find_data_folder, run_manage_command
from fermi.cli.options import Session, command
from fermi.cli.texts import _
from fermi.client import config


@command("login-link", _("MORE_LOGIN_LINK"), output=False)
@click.argument("name", required=False)
@click.option("--data", metavar="FOLDER", help=_("OPTION_DATA"))
def login_link(session: Session, name: str | None, data: str | None) -> int:
    code, made = run_manage_command("login_link", *([name] if name else []), data=data)
    if made is None:
        return code
    if made["signInLink"] is None:
        output.print_error(_("NO_ACTIVE_USER", name=name or _("AN_ADMINISTRATOR")))
        return EXIT_NOT_FOUND
    output.print_message(_("SIGN_IN_LINK", name=made["username"]))
    url = session.url or os.environ.get("FERMI_PUBLIC_URL") or config.find_local_endpoint().url
    if not url:
        output.print_message(_("PLATFORM_NOT_RUNNING", folder=find_data_folder(data)))
    click.echo(f"{url.rstrip('/')}{made['signInLink']}")
    return 0
