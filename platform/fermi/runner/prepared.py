"""Stands in for `fermi.runner.package_cache` until the release after 0.1.0: nodes and environments that were started
before an update still start it by this name."""

from fermi.runner.package_cache import PrepareError, hold, prepare, uses_tree

__all__ = ["PrepareError", "hold", "prepare", "uses_tree"]
