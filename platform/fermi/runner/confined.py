"""Stands in for `fermi.runner.sandboxed_program` until the release after 0.1.0: nodes and environments that were
started before an update still start it by this name."""

import runpy

if __name__ == "__main__":
    runpy.run_module("fermi.runner.sandboxed_program", run_name="__main__", alter_sys=True)
