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

TIMEOUT_SECONDS = 10.0
MAX_REASON_LENGTH, MAX_PACKAGES = 300, 5000
DESCRIBE_PROGRAM = """
import sys
print(".".join(map(str, sys.version_info[:3])))
if sys.version_info >= (3, 9):
    import importlib.metadata as m
    for one in m.distributions():
        try: print(one.metadata["Name"])
        except Exception: pass
"""


def find_interpreter(name: str) -> str:
    """Return the path; empty if there is no such kernel."""
    if "/" in name:
        return name
    return interpreters.resolve_interpreter(name, interpreters.find_interpreters(own=()))


def describe_interpreter(python: str) -> dict[str, Any]:
    """Return the line's content for a path."""
    if not os.path.exists(python):
        return {"python": python}
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    try:
        done = subprocess.run(
            [python, "-c", DESCRIBE_PROGRAM], stdin=subprocess.DEVNULL, capture_output=True, encoding="utf-8",
            errors="replace", timeout=TIMEOUT_SECONDS, check=False, env=env, cwd="/",
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError) as error:
        return {"python": python, "why": str(getattr(error, "strerror", None) or error)[:MAX_REASON_LENGTH]}
    version, *packages = done.stdout.split() or [""]
    if done.returncode or not version[:1].isdigit():
        said = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        return {"python": python, "why": said[:MAX_REASON_LENGTH]}
    return {"python": python, "version": version, "packages": packages[:MAX_PACKAGES]}


if __name__ == "__main__":
    print(json.dumps(describe_interpreter(find_interpreter(sys.argv[1]))))
