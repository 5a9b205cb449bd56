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

CACHE_SECONDS = 10
"""For so long an answer is cached: after `pip install` the platform need not be restarted."""

TIMEOUT_SECONDS = 30
MAX_CACHED = 200
LIST_MISSING = """
import importlib.metadata as m, sys
for name in sys.argv[1:]:
    try: m.distribution(name)
    except m.PackageNotFoundError: print(name)
"""
MIN_PYTHON = (3, 9)
"""Oldest Python that ranks' probe and the node runner's modules support."""
PYTHON_FIELD = "distributedConfig.python"
_missing_cache: dict[tuple[str, tuple[str, ...]], tuple[float, list[str] | None]] = {}
_chosen_cache: dict[str, tuple[float, ChosenInterpreter]] = {}
_query_lock = threading.Lock()


@dataclass(frozen=True, slots=True)
class ChosenInterpreter:
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
            return Problem(PYTHON_FIELD, code, {**params, **({"why": self.why} if self.why else {})})
        if tuple(map(int, self.version.split(".")[:2])) < MIN_PYTHON:
            return Problem(PYTHON_FIELD, "PYTHON_TOO_OLD", {**params, "version": self.version})
        return None


def find_chosen_interpreter(named: str, env: Mapping[str, str], confine: Mapping[str, Any] | None) -> ChosenInterpreter:
    """Return what a path or a kernel's name means to a rank in this sandbox. It is run as such a rank
    (`fermi.runner.sandboxed_program`), because the user who names it may have written it. The answer is cached for a
    while."""
    command = [sys.executable, "-m", "fermi.inside.chosen_interpreter", named]
    order = json.dumps({"command": command, "name": "python", "env": dict(env), "confine": confine}, sort_keys=True)
    at, found = _chosen_cache.get(order, (0.0, ChosenInterpreter("")))
    if not at or time.monotonic() - at > CACHE_SECONDS:
        found = _query_chosen(order)  # without the lock: a slow interpreter delays no other query
        if len(_chosen_cache) >= MAX_CACHED:
            _chosen_cache.clear()
        _chosen_cache[order] = time.monotonic(), found
    return found


def normalize_name(name: str) -> str:
    """Return a distribution's name in the form in which all spellings of it compare (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def _query_chosen(order: str) -> ChosenInterpreter:
    env = json.loads(order)["env"]
    try:
        done = subprocess.run(
            [sys.executable, "-m", "fermi.runner.sandboxed_program"], input=f"{order}\n", env=env, cwd="/",
            capture_output=True, encoding="utf-8", errors="replace", timeout=TIMEOUT_SECONDS, check=False,
        )  # fmt: skip
        said = json.loads(done.stdout)
        packages = frozenset(normalize_name(str(name)) for name in said.get("packages", ()))
        return ChosenInterpreter(str(said["python"]), str(said.get("version", "")), str(said.get("why", "")), packages)
    except (OSError, subprocess.SubprocessError) as error:
        return ChosenInterpreter("", why=str(error))
    except (ValueError, KeyError, TypeError):
        return ChosenInterpreter(
            "", why=(done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1][:300]
        )


def find_missing_distributions(python: str, distributions: Sequence[str]) -> list[str] | None:
    """Return which of the distributions the interpreter lacks; None where it cannot be asked."""
    key = python, tuple(distributions)
    with _query_lock:
        at, found = _missing_cache.get(key, (0.0, None))
        if not at or time.monotonic() - at > CACHE_SECONDS:
            found = (
                _find_missing_here(distributions) if python == sys.executable else _query_missing(python, distributions)
            )
            _missing_cache[key] = time.monotonic(), found
    return found


def _find_missing_here(distributions: Sequence[str]) -> list[str]:
    def is_there(name: str) -> bool:
        try:
            return bool(metadata.distribution(name))
        except metadata.PackageNotFoundError:
            return False

    return [name for name in distributions if not is_there(name)]


def _query_missing(python: str, distributions: Sequence[str]) -> list[str] | None:
    try:
        done = subprocess.run(
            [python, "-c", LIST_MISSING, *distributions],
            capture_output=True, encoding="utf-8", errors="replace", timeout=TIMEOUT_SECONDS, check=True,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.split()
