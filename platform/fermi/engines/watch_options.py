"""Options of how a node runner watches its ranks, the same on every engine."""

from typing import Any

from fermi.jobs.spec import JobSpec


def build_watch_options(job: JobSpec) -> dict[str, Any]:
    """Return these options as keys of a node's spec."""
    return {"pulse": job.pulse, "hang_seconds": job.hang_seconds}
