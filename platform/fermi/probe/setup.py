"""Creates the files through which a rank reports to its runner. Standard library only, Python 3.9 or later."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from fermi.probe.inner_ranks import RANKS_VARIABLE
from fermi.probe.records import RANK_VARIABLE
from fermi.probe.shared_page import PAGE_BYTES, PULSE_VARIABLE

SITE_FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "site")
"""First on a rank's PYTHONPATH: the `sitecustomize` there starts the probe in executed programs, be it the rank or what
a forked one starts."""


class RankFiles(NamedTuple):
    """Three files without a name, as descriptors that no other program inherits: the page, the file for stacks (opened
    for append, so that the runner may truncate it at any time), and the queue of records (the same, as several
    processes write to it)."""

    page: int
    stacks: int
    records: int

    def environment(self, env: Mapping[str, str]) -> dict[str, str]:
        """Return the variables for a rank, which this process is: what it starts may have closed what it inherits
        (`conda run`), and finds the files through it."""
        path = os.pathsep.join(filter(None, [SITE_FOLDER, env.get("PYTHONPATH", "")]))
        descriptors = f"{self.page},{self.stacks},{self.records},{os.getpid()}"
        return {PULSE_VARIABLE: descriptors, "PYTHONPATH": path, RANK_VARIABLE: env.get("RANK", "")}

    def inherit(self) -> None:
        """Make the descriptors inheritable, in the child that executes the rank's program."""
        for descriptor in self:
            os.set_inheritable(descriptor, True)

    def close(self) -> None:
        """Close all."""
        for descriptor in self:
            os.close(descriptor)


class LauncherFiles(NamedTuple):
    """Files of a process that starts its node's ranks itself, and of these ranks from `first` on. `output`: device and
    inode of its output, which is the first rank's; `outputs`: descriptors that lead to the others' logs."""

    own: RankFiles
    first: int
    output: tuple[int, int]
    ranks: Sequence[RankFiles]
    outputs: Sequence[int]

    def environment(self, env: Mapping[str, str]) -> dict[str, str]:
        """Return the variables for this process, which is the launcher."""
        device, inode = self.output
        files = [",".join(map(str, (*one, log))) for one, log in zip(self.ranks, (-1, *self.outputs))]  # noqa: B905
        named = ";".join([str(os.getpid()), str(self.first), f"{device}:{inode}", *files])
        return {**self.own.environment(env), RANKS_VARIABLE: named}

    def inherit(self) -> None:
        """Make the descriptors inheritable, in the child that executes the program."""
        for descriptor in (*self.own, *(one for files in self.ranks for one in files), *self.outputs):
            os.set_inheritable(descriptor, True)


def create_rank_files() -> RankFiles:
    """Return new files for one rank. The page is sealed against resizing: reading a page that has shrunk would end the
    reader by SIGBUS. Raises OSError."""
    page = os.memfd_create("fermi-page", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(page, PAGE_BYTES)
    fcntl.fcntl(page, _ADD_SEALS, _SEAL_SEAL | _SEAL_SHRINK | _SEAL_GROW)
    stacks, records = (os.memfd_create(f"fermi-{name}", os.MFD_CLOEXEC) for name in ("stacks", "records"))
    for appended in (stacks, records):
        fcntl.fcntl(appended, fcntl.F_SETFL, os.O_APPEND)
    return RankFiles(page, stacks, records)


_ADD_SEALS, _SEAL_SEAL, _SEAL_SHRINK, _SEAL_GROW = 1033, 1, 2, 4  # Python's fcntl has them in newer versions only
