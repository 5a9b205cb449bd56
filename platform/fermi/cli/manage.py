"""Commands that run on the platform's machine: they call its `manage.py` and need no sign-in."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import click

import fermi
from fermi.cli import output
from fermi.cli.error_handler import EXIT_NO_PLATFORM
from fermi.cli.texts import _

MANAGE_PY = Path(fermi.__file__).resolve().parents[2] / "manage.py"
"""The platform's `manage.py`, where this command is part of the platform's installation."""


def find_data_folder(data: str | None) -> Path:
    """Return the platform's data directory: `data`, else FERMI_DATA, else `var`. Set FERMI_DATA."""
    if data:
        os.environ["FERMI_DATA"] = data
    return Path(os.environ.setdefault("FERMI_DATA", "var")).absolute()


def run_manage_command(name: str, *words: str, data: str | None) -> tuple[int, dict[str, Any] | None]:
    """Run the management command `name`. Return 0 and the JSON line that it printed; or an exit code and None, after
    printing the reason."""
    folder = find_data_folder(data)
    if not MANAGE_PY.is_file() or not (folder.is_dir() or os.environ.get("DATABASE_URL")):
        output.print_error(_("NO_PLATFORM_HERE", missing=MANAGE_PY if folder.is_dir() else folder))
        click.echo(_("RUN_ON_PLATFORMS_MACHINE"), err=True)
        return EXIT_NO_PLATFORM, None
    asked = subprocess.run(
        [sys.executable, MANAGE_PY, name, *words],
        env={**os.environ, "FERMI_DATA": str(folder)},
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    if asked.returncode:
        output.print_error(_("DATABASE_NOT_READABLE"))
        return EXIT_NO_PLATFORM, None
    return 0, json.loads(asked.stdout.splitlines()[-1])
