"""Stands in for `fermi.telemetry.aggregation` until the release after 0.1.0: nodes and environments that were started
before an update still start it by this name."""
