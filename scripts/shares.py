"""Choose which files of long tests a run of `make test` takes. Tests that start whole platforms, trainings and browsers
take two hours on two cores; a run takes a sixth of their files, the next commit's run another sixth, ALL=1 all of
them. A run takes each file of tests for both databases on one of them, which its seed chooses."""

import hashlib
import os
from collections.abc import Iterable, Mapping
from pathlib import Path

SHARE_COUNT = 6
SHARE_VARIABLE = "FERMI_TEST_SHARE"
"""Which share a run takes, from 1 on; without it all files are taken: who names files to pytest gets those."""
ALWAYS_RUN = ("test_main_job.py", "test_every_operation.py")
"""Files that every share takes, on each database whose part of `make test` has them."""


def choose_share(environ: Mapping[str, str], commit: str) -> str:
    """Return the share of a run, an empty string for all files: what the environment says, else one that follows from
    the commit, so that the same commit always takes the same files."""
    if environ.get("FERMI_TEST_ALL"):
        return ""
    return environ.get(SHARE_VARIABLE) or str(int(hashlib.sha256(commit.encode()).hexdigest(), 16) % SHARE_COUNT + 1)


def list_left_out(files: Iterable[Path], share: str) -> set[Path]:
    """Return the files that the share does not take. Files are dealt out by size, back and forth, so that shares are
    about equally large."""
    if not share:
        return set()
    dealt = sorted(files, key=lambda path: (-path.stat().st_size, path.name))
    turns = [*range(SHARE_COUNT), *reversed(range(SHARE_COUNT))]
    return {
        path
        for number, path in enumerate(dealt)
        if turns[number % len(turns)] != int(share) - 1 and path.name not in ALWAYS_RUN
    }


def is_for_other_database(file: Path, seed: str, postgres: bool) -> bool:
    """Return whether the run of a seed (FERMI_TEST_SEED) takes a file of tests for both databases on the other database
    alone."""
    if file.name in ALWAYS_RUN:
        return False
    return (int(hashlib.sha256(f"{seed} {file.name}".encode()).hexdigest(), 16) % 2 == 1) != postgres


def get_current_share() -> str:
    return os.environ.get(SHARE_VARIABLE, "")
