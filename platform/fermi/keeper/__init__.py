"""Stands in for `fermi.envd` until the release after 0.1.0: environments that were started before an update still
start its parts by these names."""
