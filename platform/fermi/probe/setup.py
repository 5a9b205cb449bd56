"""What a runner gives a rank, so that the rank's process can tell of itself. Standard library only, Python 3.9 or
later."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Mapping
from typing import NamedTuple

from fermi.probe.shared_page import SIZE, VARIABLE

SITE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "site")
"""First on a rank's PYTHONPATH: the `sitecustomize` there starts the probe in what is executed, be it the rank or what
a forked one starts."""


class Given(NamedTuple):
    """Two files without a name, as descriptors that no other program inherits: the page, and where the rank's process
    writes its stacks (always at the end, so that the runner may cut it at any time)."""

    page: int
    stacks: int

    def environment(self, env: Mapping[str, str]) -> dict[str, str]:
        """What a rank's environment gets."""
        path = os.pathsep.join(filter(None, [SITE, env.get("PYTHONPATH", "")]))
        return {VARIABLE: f"{self.page},{self.stacks}", "PYTHONPATH": path}

    def inherit(self) -> None:
        """In the child: the program that it executes is to have them."""
        for descriptor in self:
            os.set_inheritable(descriptor, True)

    def close(self) -> None:
        for descriptor in self:
            os.close(descriptor)


def make() -> Given:
    """One for each rank. The page keeps its size, whatever the rank does: whoever reads a page that has shrunk would be
    ended by SIGBUS. Raises OSError."""
    page = os.memfd_create("fermi-page", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(page, SIZE)
    fcntl.fcntl(page, _ADD_SEALS, _SEAL_SEAL | _SEAL_SHRINK | _SEAL_GROW)
    stacks = os.memfd_create("fermi-stacks", os.MFD_CLOEXEC)
    fcntl.fcntl(stacks, fcntl.F_SETFL, os.O_APPEND)
    return Given(page, stacks)


_ADD_SEALS, _SEAL_SEAL, _SEAL_SHRINK, _SEAL_GROW = 1033, 1, 2, 4  # Python's fcntl has them in newer versions only
