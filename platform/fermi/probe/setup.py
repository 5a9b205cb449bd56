"""Creates the files through which a rank reports to its runner. Standard library only, Python 3.9 or later."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Mapping
from typing import NamedTuple

from fermi.probe.shared_page import PAGE_BYTES, PULSE_VARIABLE

SITE_FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "site")
"""First on a rank's PYTHONPATH: the `sitecustomize` there starts the probe in executed programs, be it the rank or what
a forked one starts."""


class RankFiles(NamedTuple):
    """Two files without a name, as descriptors that no other program inherits: the page, and the file for stacks
    (opened for append, so that the runner may truncate it at any time)."""

    page: int
    stacks: int

    def environment(self, env: Mapping[str, str]) -> dict[str, str]:
        """Return the variables for a rank."""
        path = os.pathsep.join(filter(None, [SITE_FOLDER, env.get("PYTHONPATH", "")]))
        return {PULSE_VARIABLE: f"{self.page},{self.stacks}", "PYTHONPATH": path}

    def inherit(self) -> None:
        """Make the descriptors inheritable, in the child that executes the rank's program."""
        for descriptor in self:
            os.set_inheritable(descriptor, True)

    def close(self) -> None:
        """Close both."""
        for descriptor in self:
            os.close(descriptor)


def create_rank_files() -> RankFiles:
    """Return new files for one rank. The page is sealed against resizing: reading a page that has shrunk would end the
    reader by SIGBUS. Raises OSError."""
    page = os.memfd_create("fermi-page", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(page, PAGE_BYTES)
    fcntl.fcntl(page, _ADD_SEALS, _SEAL_SEAL | _SEAL_SHRINK | _SEAL_GROW)
    stacks = os.memfd_create("fermi-stacks", os.MFD_CLOEXEC)
    fcntl.fcntl(stacks, fcntl.F_SETFL, os.O_APPEND)
    return RankFiles(page, stacks)


_ADD_SEALS, _SEAL_SEAL, _SEAL_SHRINK, _SEAL_GROW = 1033, 1, 2, 4  # Python's fcntl has them in newer versions only
