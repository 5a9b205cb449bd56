"""Stands in for `fermi.runner.package_cache` until the release after 0.1.0: nodes and environments that were started
before an update still start it by this name."""

from fermi.runner.package_cache import PackagesError as PrepareError
from fermi.runner.package_cache import acquire_environment as hold
from fermi.runner.package_cache import has_local_packages as uses_tree
from fermi.runner.package_cache import prepare_packages as prepare

__all__ = ["PrepareError", "hold", "prepare", "uses_tree"]
