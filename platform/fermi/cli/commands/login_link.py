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


@command(
    "login-link",
    _(
        "For the platform's own machine: it needs no password, but the platform's database (its data directory, or "
        "DATABASE_URL). The link works once, within half an hour. NAME is by default the first administrator's."
    ),
    output=False,
)
@click.argument("name", required=False)
@click.option(
    "--data", metavar="FOLDER", help=_("Data directory, DATA of `make up`. Default: $FERMI_DATA, else ./var.")
)
def login_link(session: Session, name: str | None, data: str | None) -> int:
    if data:
        os.environ["FERMI_DATA"] = data
    folder = Path(os.environ.setdefault("FERMI_DATA", "var")).absolute()
    if not MANAGE.is_file() or not (folder.is_dir() or os.environ.get("DATABASE_URL")):
        output.fault(
            _("There is no platform here: {missing} is missing.", missing=MANAGE if folder.is_dir() else folder)
        )
        click.echo(_("  → Run this on the machine where the platform runs, with --data if need be."), err=True)
        return NO_PLATFORM
    asked = subprocess.run(
        [sys.executable, MANAGE, "login_link", *([name] if name else [])],
        env={**os.environ, "FERMI_DATA": str(folder)},
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    if asked.returncode:
        output.fault(_("The platform's database could not be read; what it said is above."))
        return NO_PLATFORM
    made = json.loads(asked.stdout.splitlines()[-1])
    if made["signInLink"] is None:
        output.fault(_("There is no active user {name!r}.", name=name or _("administrator")))
        return NOT_FOUND
    output.say(_("Sign-in link for {name}, once, within half an hour:", name=made["username"]))
    url = session.url or os.environ.get("FERMI_PUBLIC_URL") or config.local().url
    if not url:
        output.say(_("The platform does not run from {folder} now: open this path on its address.", folder=folder))
    click.echo(f"{url.rstrip('/')}{made['signInLink']}")
    return 0
