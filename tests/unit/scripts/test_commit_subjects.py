"""`scripts/commit_subjects.py` accepts `area: Imperative sentence` and says what is wrong with anything else."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


def check(folder: Path, subject: str) -> tuple[int, str]:
    message = folder / "message"
    message.write_text(f"{subject}\n\nThe body says why.\n")
    done = subprocess.run(
        [sys.executable, str(ROOT / "scripts" / "commit_subjects.py"), str(message)], capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    return done.returncode, done.stdout


@pytest.mark.parametrize(
    "subject", ["proxy: Close open connections of users who lost access", "engines/slurm: Read `squeue` in UTF-8"]
)
def test_an_area_and_an_imperative_pass(tmp_path: Path, subject: str) -> None:
    assert check(tmp_path, subject) == (0, "")


@pytest.mark.parametrize(
    ("subject", "why"),
    [
        ("Another step asks for nothing but itself", "expected `area: Imperative sentence`"),
        ("proxy: Closed open connections", "found 'Closed'"),
        ("proxy: The connection ends", "found 'The'"),
        ("proxy: Close connections.", "no full stop"),
        ("cli, train: Close connections", "one area"),
        ("proxy: Close " + "connections " * 6 + "now", "characters; at most 71"),
    ],
)
def test_other_subjects_are_named(tmp_path: Path, subject: str, why: str) -> None:
    code, output = check(tmp_path, subject)
    assert code == 1
    assert why in output
