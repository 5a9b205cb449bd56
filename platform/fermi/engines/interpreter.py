"""Query which distributions an interpreter on this machine has, and whether ranks can run with one that a task
names."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from typing import Any

from fermi.jobs.spec import Problem

KEPT_SECONDS = 10
"""For so long an answer is cached: after `pip install` the platform need not be restarted."""

PATIENCE_SECONDS = 30
MAX_LOOKED = 200
TELL = """
import importlib.metadata as m, sys
for name in sys.argv[1:]:
    try: m.distribution(name)
    except m.PackageNotFoundError: print(name)
"""
OLDEST = (3, 9)
"""Oldest Python that ranks' probe and the node runner's modules support."""
FIELD = "distributedConfig.python"
_known: dict[tuple[str, tuple[str, ...]], tuple[float, list[str] | None]] = {}
_looked: dict[str, tuple[float, Chosen]] = {}
_asking = threading.Lock()


@dataclass(frozen=True, slots=True)
class Chosen:
    """Interpreter that a task names. `path`: empty where there is none; `version`: empty where it does not run, and
    `why`; `packages`: the distributions that it has, as `normalize_name` spells them."""

    path: str
    version: str = ""
    why: str = ""
    packages: frozenset[str] = frozenset()

    def problem(self, named: str, environments: str) -> Problem | None:
        """Return what is wrong with it for training; None: nothing."""
        params = {"environments": environments, "python": self.path or named}
        if not self.version:
            code = "PYTHON_NOT_USABLE" if self.why else "PYTHON_NOT_FOUND"
            return Problem(FIELD, code, {**params, **({"why": self.why} if self.why else {})})
        if tuple(map(int, self.version.split(".")[:2])) < OLDEST:
            return Problem(FIELD, "PYTHON_TOO_OLD", {**params, "version": self.version})
        return None


def find_chosen(named: str, env: Mapping[str, str], confine: Mapping[str, Any] | None) -> Chosen:
    """Return what a path or a kernel's name means to a rank in this sandbox. It is run as such a rank
    (`fermi.runner.sandboxed_program`), because the user who names it may have written it. The answer is cached for a
    while."""
    command = [sys.executable, "-m", "fermi.inside.chosen_interpreter", named]
    order = json.dumps({"command": command, "name": "python", "env": dict(env), "confine": confine}, sort_keys=True)
    at, found = _looked.get(order, (0.0, Chosen("")))
    if not at or time.monotonic() - at > KEPT_SECONDS:
        found = _look(order)  # without the lock: a slow interpreter delays no other query
        if len(_looked) >= MAX_LOOKED:
            _looked.clear()
        _looked[order] = time.monotonic(), found
    return found


def canonical(name: str) -> str:
    """Return a distribution's name in the form in which all spellings of it compare (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def _look(order: str) -> Chosen:
    env = json.loads(order)["env"]
    try:
        done = subprocess.run(
            [sys.executable, "-m", "fermi.runner.sandboxed_program"], input=f"{order}\n", env=env, cwd="/",
            capture_output=True, encoding="utf-8", errors="replace", timeout=PATIENCE_SECONDS, check=False,
        )  # fmt: skip
        said = json.loads(done.stdout)
        packages = frozenset(canonical(str(name)) for name in said.get("packages", ()))
        return Chosen(str(said["python"]), str(said.get("version", "")), str(said.get("why", "")), packages)
    except (OSError, subprocess.SubprocessError) as error:
        return Chosen("", why=str(error))
    except (ValueError, KeyError, TypeError):
        return Chosen("", why=(done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1][:300])


def absent(python: str, distributions: Sequence[str]) -> list[str] | None:
    """Return which of the distributions the interpreter lacks; None where it cannot be asked."""
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
