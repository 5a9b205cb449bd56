"""Stands in for `fermi.runner.sandbox` until the release after 0.1.0: nodes and environments that were started before
an update still start it by this name."""

from fermi.runner.sandbox import Sandbox as Confinement

__all__ = ["Confinement"]
