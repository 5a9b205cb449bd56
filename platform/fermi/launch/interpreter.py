"""What an interpreter on this machine has installed."""

import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from importlib import metadata

KEPT_SECONDS = 10
"""So long an answer counts: who has just installed something need not restart the platform."""

PATIENCE_SECONDS = 30
TELL = """
import importlib.metadata as m, sys
for name in sys.argv[1:]:
    try: m.distribution(name)
    except m.PackageNotFoundError: print(name)
"""
_known: dict[tuple[str, tuple[str, ...]], tuple[float, list[str] | None]] = {}
_asking = threading.Lock()


def absent(python: str, distributions: Sequence[str]) -> list[str] | None:
    """Which of them the interpreter has not got; None where it cannot be asked."""
    key = python, tuple(distributions)
    with _asking:
        at, found = _known.get(key, (0.0, None))
        if not at or time.monotonic() - at > KEPT_SECONDS:
            found = _absent_here(distributions) if python == sys.executable else _ask(python, distributions)
            _known[key] = time.monotonic(), found
    return found


def _absent_here(distributions: Sequence[str]) -> list[str]:
    def is_there(name: str) -> bool:
        try:
            return bool(metadata.distribution(name))
        except metadata.PackageNotFoundError:
            return False

    return [name for name in distributions if not is_there(name)]


def _ask(python: str, distributions: Sequence[str]) -> list[str] | None:
    try:
        done = subprocess.run(
            [python, "-c", TELL, *distributions],
            capture_output=True, encoding="utf-8", errors="replace", timeout=PATIENCE_SECONDS, check=True,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.split()
