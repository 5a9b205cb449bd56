"""Going on as the interpreter of a virtual environment, in a process of the interpreter that it stands on, which has
imported modules already. Standard library only, Python 3.9 or later.

A process may where the environment has nothing in place of what was imported, and nothing that was looked for in vain
(`misses`): torch, for one, decides while it is imported whether it uses opt_einsum. Where a path file adds folders or
runs code, nobody knows that, so it may not."""

from __future__ import annotations

import importlib
import json
import os
import sys
from collections.abc import Sequence
from types import ModuleType

MADE = "made.json"
"""In the environment's folder: what it was made from, with the interpreter as `base`."""
BASE = "fermi-base.pth"
"""Among its packages: where those of that interpreter lie."""
NATIVE = ("nvidia",)
"""Libraries that torch has loaded, perhaps from somewhere else."""
misses: set[str] = set()
"""Modules, at the top, that were looked for here and are not installed."""


class _Last:
    """Behind all other finders of `sys.meta_path`: what comes here, none of them has found."""

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> None:
        misses.add(name.partition(".")[0])


def note_misses() -> None:
    """From now on."""
    if not any(isinstance(one, _Last) for one in sys.meta_path):
        sys.meta_path.append(_Last())


def go_on_as(folder: str) -> bool:
    """Whether this process imports from now on as the interpreter of the environment `folder` does; if not, that has to
    be executed. To be called once it is confined: what is in the folder may belong to somebody else."""
    version = ".".join(map(str, sys.version_info[:2]))
    packages = os.path.join(folder, "lib", f"python{version}", "site-packages")
    try:
        with open(os.path.join(folder, MADE), encoding="utf-8") as file:
            stands_on = json.load(file)["base"]
        if stands_on != sys.executable or any(map(_stands_in, os.listdir(packages))):
            return False
    except (OSError, ValueError, KeyError, TypeError):
        return False
    at = next((index for index, path in enumerate(sys.path) if path.endswith("-packages")), len(sys.path))
    sys.path.insert(at, packages)
    sys.executable = os.path.join(folder, "bin", "python")
    sys.prefix = sys.exec_prefix = folder
    importlib.invalidate_caches()
    return True


def _stands_in(name: str) -> bool:
    """Whether something of this name among the packages may be in place of what was imported, or looked for."""
    if name.endswith(".pth"):
        return name != BASE
    module = name.partition(".")[0]
    return module in sys.modules or module in misses or module in NATIVE
