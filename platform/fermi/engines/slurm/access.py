"""How a connection reaches Slurm, and as which user."""

import getpass
from collections.abc import Mapping
from typing import Any

from fermi.engines.slurm.commands import SlurmCommands
from fermi.engines.slurm.driver import SlurmDriver
from fermi.engines.slurm.rest import SlurmRestClient


def create_driver(connection: Mapping[str, Any]) -> SlurmDriver:
    """Return the driver of a connection: slurmrestd, or Slurm's commands."""
    return SlurmRestClient(connection) if connection.get("url") else SlurmCommands(connection)


def get_user(connection: Mapping[str, Any]) -> str:
    """Return the user of the jobs."""
    return str(connection.get("user") or getpass.getuser())
