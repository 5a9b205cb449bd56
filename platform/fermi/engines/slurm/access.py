"""How a connection reaches Slurm, and as which user."""

import getpass
from collections.abc import Mapping
from typing import Any

from fermi.engines.slurm.commands import Commands
from fermi.engines.slurm.driver import Driver
from fermi.engines.slurm.rest import Rest


def driver(connection: Mapping[str, Any]) -> Driver:
    """Return the driver of a connection: slurmrestd, or Slurm's commands."""
    return Rest(connection) if connection.get("url") else Commands(connection)


def user_of(connection: Mapping[str, Any]) -> str:
    """Return the user of the jobs."""
    return str(connection.get("user") or getpass.getuser())
