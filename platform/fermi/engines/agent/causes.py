"""Causes that only this engine reports for an attempt, beside those of `fermi.jobs.causes`."""

from fermi.jobs.causes import declare_causes
from fermi.jobs.spec import Cause

CAUSES = declare_causes(
    Cause("WORKER_LOST", retry=True, underlying=True, lost=True),
    # of a dev environment on a host
    Cause("HOST_LOST", retry=True),
    Cause("HOST_NOT_TOLD", retry=True),
)
