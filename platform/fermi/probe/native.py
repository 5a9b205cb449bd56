"""What a rank's threads do in C, by py-spy, where it is installed and may trace. For a runner: the rank has no part in
it. Standard library only, Python 3.9 or later."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

SECONDS = 5.0
LONGEST = 1 << 16


def stacks(pid: int, python: str = sys.executable, seconds: float = SECONDS) -> str:
    """Python's and native frames of all threads; empty where that cannot be told. py-spy stops the process while it
    reads: a look takes a fifth of a second, and one that takes longer is given up (whom it traced then runs on).
    `python`: beside which py-spy may be installed."""
    beside = os.path.join(os.path.dirname(python), "py-spy")
    program = beside if os.access(beside, os.X_OK) else shutil.which("py-spy")
    if program is None:
        return ""
    command = [program, "dump", "--native", "--pid", str(pid)]
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=seconds, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout[:LONGEST].decode(errors="replace") if done.returncode == 0 else ""
