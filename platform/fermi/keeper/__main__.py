"""Runs `fermi.envd` under its former name."""

import runpy

if __name__ == "__main__":
    runpy.run_module("fermi.envd", run_name="__main__", alter_sys=True)
