"""Runs a `fermi` command with the clone's own Python, for the scripts that guides name: run_distributed.py,
test_distributed.py, launch_multi_node.sh, quick_start_examples.sh. docs/manual-launch.md says what each becomes.

    python scripts/by_hand.py quickstart --list
"""

import os
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import NoReturn

ROOT = Path(__file__).resolve().parents[1]
PYTHON = ROOT / ".venv" / "bin" / "python"


def exec_fermi(*words: str) -> NoReturn:
    """Replace this process by `fermi WORDS`. Exit with a message where the clone has not been set up."""
    python = PYTHON if PYTHON.exists() else Path(sys.executable)
    if python != PYTHON and find_spec("httpx") is None:
        sys.exit(f"{ROOT} has not been set up: run `make up` there once, or install the command (docs/cli.md).")
    path = os.pathsep.join([str(ROOT / "platform"), *filter(None, [os.environ.get("PYTHONPATH")])])
    folders = os.pathsep.join([str(python.parent), os.environ.get("PATH", os.defpath)])  # `python` is the clone's, too
    os.execve(python, [str(python), "-m", "fermi.cli", *words], {**os.environ, "PYTHONPATH": path, "PATH": folders})


if __name__ == "__main__":
    exec_fermi(*sys.argv[1:])
