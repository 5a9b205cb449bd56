"""Names of runs: of an attempt of a task (`task-7kq2m9x4td-3`), and of a run of an environment (`env-7kq2m9x4td-2`).
Standard library only, Python 3.9 or later."""

from __future__ import annotations


def build_run_name(owner: str, number: int | str) -> str:
    """Return the name by which engines know the run `number` of a task or an environment: never random, so that a
    repeated submission is the same run."""
    return f"{owner}-{number}"


def parse_run_name(name: str) -> tuple[str, str]:
    """Return the id of the task or environment, and the run's number as text. Does not check that the name is a run's:
    the id of a name without a hyphen is empty."""
    owner, _, number = name.rpartition("-")
    return owner, number
