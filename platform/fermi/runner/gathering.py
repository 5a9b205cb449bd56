"""Stands in for `fermi.runner.snapshot_upload` until the release after 0.1.0: nodes and environments that were started
before an update still start it by this name."""

from fermi.runner.snapshot_upload import main

__all__ = ["main"]
