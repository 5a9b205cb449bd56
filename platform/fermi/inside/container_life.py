"""Identifies the current life of a container, from its start to its restart. Standard library only, Python 3.9 or
later."""

from __future__ import annotations

import os

from fermi.runner import processes

LIFE_VARIABLE = "FERMI_LIFE"
"""Identifies it if a container has no process namespace of its own."""


def read_container_life() -> str:
    """Return an id of the current life of this container: a restart has another first process."""
    named = os.environ.get(LIFE_VARIABLE)
    return "/".join(filter(None, (processes.read_boot_id(), str(processes.read_start_time(1)), named)))
