"""The pending jobs of a Slurm cluster, in the order in which its scheduler considers them. Pure."""

from collections.abc import Iterable

from fermi.engines.slurm.driver import Job

DOES_NOT_COMPETE = ("JobHeld", "Dependency", "BeginTime", "JobArrayTaskLimit")
"""Reasons of jobs that wait for something other than their turn and delay no other job."""


class Line:
    """Pending jobs within each partition by priority, then by number. A heterogeneous job counts once, and so does an
    array."""

    def __init__(self, jobs: Iterable[Job] = ()) -> None:
        self._by_partition: dict[str, dict[int, int]] = {}
        for job in jobs:
            if job.state == "PENDING" and job.priority and not job.reason.startswith(DOES_NOT_COMPETE):
                for name in _partitions(job):
                    line = self._by_partition.setdefault(name, {})
                    line[job.leader] = max(line.get(job.leader, 0), job.priority)

    def place(self, job: Job) -> int | None:
        """Return a job's position from 1, in the partition where it is furthest ahead; None: not known."""
        found = [line for name in _partitions(job) if job.leader in (line := self._by_partition.get(name, {}))]
        return min((_before(line, job.leader) + 1 for line in found), default=None)


def _before(line: dict[int, int], leader: int) -> int:
    mine = (-line[leader], leader)
    return sum((-priority, other) < mine for other, priority in line.items())


def _partitions(job: Job) -> list[str]:
    return [name for name in job.partition.split(",") if name]
