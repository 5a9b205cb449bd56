"""Commands that run where the platform runs: they ask its own `manage.py`, and need no sign-in."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import click

import fermi
from fermi.cli import output
from fermi.cli.error_handler import NO_PLATFORM
from fermi.cli.texts import _

MANAGE = Path(fermi.__file__).resolve().parents[2] / "manage.py"
"""The platform's own, beside which this command lies where the platform runs."""


def platform_folder(data: str | None) -> Path:
    """Returns the platform's data directory: `data`, else FERMI_DATA, else `var`. Sets FERMI_DATA."""
    if data:
        os.environ["FERMI_DATA"] = data
    return Path(os.environ.setdefault("FERMI_DATA", "var")).absolute()


def ask_platform(name: str, *words: str, data: str | None) -> tuple[int, dict[str, Any] | None]:
    """Returns 0 and the JSON line that the command `name` printed; or the exit code and None, once the reason is on the
    terminal."""
    folder = platform_folder(data)
    if not MANAGE.is_file() or not (folder.is_dir() or os.environ.get("DATABASE_URL")):
        output.fault(_("NO_PLATFORM_HERE", missing=MANAGE if folder.is_dir() else folder))
        click.echo(_("RUN_ON_PLATFORMS_MACHINE"), err=True)
        return NO_PLATFORM, None
    asked = subprocess.run(
        [sys.executable, MANAGE, name, *words],
        env={**os.environ, "FERMI_DATA": str(folder)},
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    if asked.returncode:
        output.fault(_("DATABASE_NOT_READABLE"))
        return NO_PLATFORM, None
    return 0, json.loads(asked.stdout.splitlines()[-1])
