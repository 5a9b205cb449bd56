"""Finds which of its node's ranks a process is, where the command of a task starts its ranks itself.

The runner starts one process per node then, the launcher, and has files for each rank of the node. A process is the
rank that its launcher numbers it by (LOCAL_RANK), or, where nothing does (`torch.multiprocessing.spawn`), the one as
which it joins the group of all. It writes the page of that rank from then on; and where its output still is the very
output of the launcher, it goes on in the log of that rank.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False  # `typing` is slow to import, and this is imported by every Python process of a rank
if TYPE_CHECKING:
    from collections.abc import Mapping

RANKS_VARIABLE = "FERMI_PULSE_RANKS"
"""In the environment of a launcher: `<pid>;<first rank>;<device>:<inode>;<page>,<stacks>,<records>,<output>;…`. The
process that has these descriptors open, the rank of the node's first process, the launcher's output as fstat(2) reports
it, and the files of each rank of the node."""

LOCAL_RANK_VARIABLES = ("LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "MV2_COMM_WORLD_LOCAL_RANK")
"""How launchers number the processes of a node: torchrun, Accelerate, DeepSpeed and Lightning the first (torch 2.13,
`distributed/elastic/agent/server/local_elastic_agent.py`); Open MPI, MPICH and Intel MPI, MVAPICH."""


class InnerRanks:
    """The files of the node's ranks, by local rank. Raises ValueError for a text that no runner writes."""

    def __init__(self, text: str) -> None:
        pid, first, output, *files = text.split(";")
        self.pid, self.first = int(pid), int(first)
        self.device, self.inode = map(int, output.split(":"))
        self.files = [tuple(map(int, one.split(","))) for one in files]

    @classmethod
    def from_env(cls, env: Mapping[str, str]) -> InnerRanks | None:
        """Return the ranks of the node, or None where the platform starts each rank itself."""
        return cls(env[RANKS_VARIABLE]) if RANKS_VARIABLE in env else None

    def find_local_rank(self) -> int | None:
        """Return the number that the launcher gave this process, or None."""
        for name in LOCAL_RANK_VARIABLES:
            found = os.environ.get(name, "")
            if found.isdigit() and int(found) < len(self.files):
                return int(found)
        return None

    def find_joining_rank(self, rank: object, world_size: object) -> int | None:
        """Return the local rank of a process that joins a group of so many as this rank. A group that is no larger than
        the node is one of the node alone. None: it is not one of this node's ranks."""
        if (numbered := self.find_local_rank()) is not None:
            return numbered
        if not isinstance(rank, int):
            return None
        of_node = isinstance(world_size, int) and world_size <= len(self.files)
        local = rank if of_node else rank - self.first
        return local if 0 <= local < len(self.files) else None

    def open_files(self, local_rank: int) -> tuple[int, int, int]:
        """Return descriptors of the rank's page, stacks and records. Raises OSError."""
        page, stacks, records = (self._open(one, os.O_RDWR | os.O_APPEND) for one in self.files[local_rank][:3])
        return page, stacks, records

    def redirect_output(self, local_rank: int) -> None:
        """Let what this process prints go to the log of its rank, as far as it still is the output of the launcher. The
        first rank's log is the launcher's. Raises OSError."""
        own = [number for number in (1, 2) if local_rank and self._is_launchers(number)]
        if not own:
            return
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:  # there is none yet where the interpreter begins
                stream.flush()
        log = self._open(self.files[local_rank][3], os.O_WRONLY | os.O_APPEND)
        for number in own:
            os.dup2(log, number)
        os.close(log)

    def _is_launchers(self, descriptor: int) -> bool:
        try:
            about = os.fstat(descriptor)
        except OSError:
            return False
        return (about.st_dev, about.st_ino) == (self.device, self.inode)

    def _open(self, descriptor: int, flags: int) -> int:
        path = f"/proc/{self.pid}/fd/{descriptor}"
        if not os.readlink(path).startswith(("/memfd:fermi-", "pipe:")):
            raise OSError(f"{path} is not of the probe")
        return os.open(path, flags)
