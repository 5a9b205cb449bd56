"""Finds the interpreter that a user named, and reports whether ranks can run with it.

    python -m fermi.inside.chosen_interpreter NAMED

`NAMED`: a path, or the name of a Jupyter kernel. Prints one line of JSON:

    {"python": "/…", "version": "3.11.7", "packages": ["torch", …]}    the distributions that it has
    {"python": "/…", "why": "…"}                                       it does not run
    {"python": "/…"}                  it does not exist; the path is empty for an unknown kernel

Standard library only, Python 3.9 or later.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

from fermi.inside import interpreters

PATIENCE_SECONDS = 10.0
MAX_WORDS, MAX_PACKAGES = 300, 5000
TELL = """
import sys
print(".".join(map(str, sys.version_info[:3])))
if sys.version_info >= (3, 9):
    import importlib.metadata as m
    for one in m.distributions():
        try: print(one.metadata["Name"])
        except Exception: pass
"""


def find(named: str) -> str:
    """Return the path; empty if there is no such kernel."""
    if "/" in named:
        return named
    return interpreters.resolve(named, interpreters.find(own=()))


def describe(python: str) -> dict[str, Any]:
    """Return the line's content for a path."""
    if not os.path.exists(python):
        return {"python": python}
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    try:
        done = subprocess.run(
            [python, "-c", TELL], stdin=subprocess.DEVNULL, capture_output=True, encoding="utf-8",
            errors="replace", timeout=PATIENCE_SECONDS, check=False, env=env, cwd="/",
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError) as error:
        return {"python": python, "why": str(getattr(error, "strerror", None) or error)[:MAX_WORDS]}
    version, *packages = done.stdout.split() or [""]
    if done.returncode or not version[:1].isdigit():
        said = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        return {"python": python, "why": said[:MAX_WORDS]}
    return {"python": python, "version": version, "packages": packages[:MAX_PACKAGES]}


if __name__ == "__main__":
    print(json.dumps(describe(find(sys.argv[1]))))
