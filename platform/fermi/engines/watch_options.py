"""What a node runner is told of how it watches its ranks: the same on every engine."""

from typing import Any

from fermi.jobs.spec import JobSpec


def watched(job: JobSpec) -> dict[str, Any]:
    """Keys of a node's spec."""
    return {"pulse": job.pulse, "hang_seconds": job.hang_seconds}
