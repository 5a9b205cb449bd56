"""The pending jobs of a Slurm cluster, in the order in which its scheduler considers them. Pure."""

from collections.abc import Iterable

from fermi.engines.slurm.driver import SlurmJob

NON_COMPETING_REASONS = ("JobHeld", "Dependency", "BeginTime", "JobArrayTaskLimit")
"""Reasons of jobs that wait for something other than their turn and delay no other job."""


class PendingQueue:
    """Pending jobs within each partition by priority, then by number. A heterogeneous job counts once, and so does an
    array."""

    def __init__(self, jobs: Iterable[SlurmJob] = ()) -> None:
        self._by_partition: dict[str, dict[int, int]] = {}
        for job in jobs:
            if job.state == "PENDING" and job.priority and not job.reason.startswith(NON_COMPETING_REASONS):
                for name in _list_partitions(job):
                    line = self._by_partition.setdefault(name, {})
                    line[job.leader] = max(line.get(job.leader, 0), job.priority)

    def find_position(self, job: SlurmJob) -> int | None:
        """Return a job's position from 1, in the partition where it is furthest ahead; None: not known."""
        found = [line for name in _list_partitions(job) if job.leader in (line := self._by_partition.get(name, {}))]
        return min((_count_before(line, job.leader) + 1 for line in found), default=None)


def _count_before(priorities: dict[int, int], leader: int) -> int:
    mine = (-priorities[leader], leader)
    return sum((-priority, other) < mine for other, priority in priorities.items())


def _list_partitions(job: SlurmJob) -> list[str]:
    return [name for name in job.partition.split(",") if name]
