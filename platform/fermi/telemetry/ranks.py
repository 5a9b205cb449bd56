"""Measure what the processes of a rank use together. Standard library only, Python 3.9 or later.

A rank's processes are its first one and those that descend from it. Memory that they share is counted once: the first
one's resident memory, and of the others what is theirs alone.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping

from fermi.telemetry.node import TICKS_PER_SECOND
from fermi.telemetry.proc_files import CounterRates, ProcFiles

PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
MAX_PROCESSES = 256
"""Processes of a rank that are read."""


class RankReader:
    """Reader of ranks' processes."""

    def __init__(self, files: ProcFiles, rates: CounterRates) -> None:
        self._files, self._rates = files, rates
        self.processes: dict[int, int] = {}
        """Rank by process id, of the last look."""

    def read_values(self, leaders: Mapping[int, int], now: float) -> dict[str, float]:
        """Return the ranks' values by key. `leaders`: the first process of each rank; `now`: monotonic seconds."""
        found: dict[str, float] = {}
        self.processes = {}
        for rank, leader in leaders.items():
            pids = list(self._family(leader))
            self.processes.update(dict.fromkeys(pids, rank))
            seconds = memory = 0.0
            read = written = 0
            for pid in pids:
                fields = self._files.once(f"/proc/{pid}/stat").rpartition(b")")[2].split()
                sizes = self._files.once(f"/proc/{pid}/statm").split()
                if len(fields) < 16 or len(sizes) < 3:
                    continue
                seconds += (
                    sum(int(field) for field in fields[11:15]) / TICKS_PER_SECOND
                )  # and what its ended children used
                memory += (int(sizes[1]) - (0 if pid == leader else int(sizes[2]))) * PAGE_BYTES
                for line in self._files.once(f"/proc/{pid}/io").splitlines():
                    what, _, value = line.partition(b": ")
                    if what == b"read_bytes":
                        read += int(value)
                    elif what == b"write_bytes":
                        written += int(value)
            if not memory:
                continue
            found[f"rank_memory:{rank}"] = memory
            for name, count, unit in (("cpu", seconds, 100), ("read", read, 1), ("written", written, 1)):
                if (rate := self._rates.compute_rate(f"rank_{name}:{rank} {leader}", count, now)) is not None:
                    found[f"rank_{name}:{rank}"] = rate * unit
        return found

    def _family(self, leader: int) -> Iterator[int]:
        """Yield the process and its descendants: the children that each main thread has; what other threads started is
        not found, but is rare."""
        waiting = [leader]
        for _ in range(MAX_PROCESSES):
            if not waiting:
                return
            pid = waiting.pop()
            yield pid
            waiting += map(int, self._files.once(f"/proc/{pid}/task/{pid}/children").split())
