"""A way back in for whoever runs the platform: a one-time sign-in link, made on the platform's own machine."""

import json
import os
import subprocess
import sys
from pathlib import Path

import click

import fermi
from fermi.cli import output
from fermi.cli.failures import NO_PLATFORM, NOT_FOUND
from fermi.cli.options import Session, command
from fermi.cli.texts import _
from fermi.client import config

MANAGE = Path(fermi.__file__).resolve().parents[2] / "manage.py"
"""The platform's own, beside which this command lies where the platform runs."""


@command("login-link", _("MORE_LOGIN_LINK"), output=False)
@click.argument("name", required=False)
@click.option("--data", metavar="FOLDER", help=_("OPTION_DATA"))
def login_link(session: Session, name: str | None, data: str | None) -> int:
    if data:
        os.environ["FERMI_DATA"] = data
    folder = Path(os.environ.setdefault("FERMI_DATA", "var")).absolute()
    if not MANAGE.is_file() or not (folder.is_dir() or os.environ.get("DATABASE_URL")):
        output.fault(_("NO_PLATFORM_HERE", missing=MANAGE if folder.is_dir() else folder))
        click.echo(_("RUN_ON_PLATFORMS_MACHINE"), err=True)
        return NO_PLATFORM
    asked = subprocess.run(
        [sys.executable, MANAGE, "login_link", *([name] if name else [])],
        env={**os.environ, "FERMI_DATA": str(folder)},
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    if asked.returncode:
        output.fault(_("DATABASE_NOT_READABLE"))
        return NO_PLATFORM
    made = json.loads(asked.stdout.splitlines()[-1])
    if made["signInLink"] is None:
        output.fault(_("NO_ACTIVE_USER", name=name or _("AN_ADMINISTRATOR")))
        return NOT_FOUND
    output.say(_("SIGN_IN_LINK", name=made["username"]))
    url = session.url or os.environ.get("FERMI_PUBLIC_URL") or config.local().url
    if not url:
        output.say(_("PLATFORM_NOT_RUNNING", folder=folder))
    click.echo(f"{url.rstrip('/')}{made['signInLink']}")
    return 0
