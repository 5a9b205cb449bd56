"""Lets a process continue as the interpreter of a virtual environment on top of its own interpreter, with the modules
that it has imported already. Standard library only, Python 3.9 or later.

That is possible if the environment has no other version of what was imported, and nothing that was looked for in vain
(`missing_modules`): torch, for one, decides during its import whether it uses opt_einsum. A path file that adds folders
or runs code makes that unknown, so then it is not possible.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from collections.abc import Sequence
from types import ModuleType

MADE_NAME = "made.json"
"""In the environment's folder: what it was made from, with the interpreter as `base`."""
BASE_NAME = "fermi-base.pth"
"""Among its packages: the folders of that interpreter's packages."""
NATIVE_PACKAGES = ("nvidia",)
"""Packages with libraries that torch has loaded, perhaps from somewhere else."""
missing_modules: set[str] = set()
"""Top-level modules that were looked for here and are not installed."""


class _MissRecorder:
    """Comes after all other finders of `sys.meta_path`, so it is asked only for modules that none of them has found."""

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> None:
        missing_modules.add(name.partition(".")[0])


def record_missing_modules() -> None:
    """Record missing modules from now on."""
    if not any(isinstance(one, _MissRecorder) for one in sys.meta_path):
        sys.meta_path.append(_MissRecorder())


def adopt_venv(folder: str) -> bool:
    """Make this process import as the interpreter of the environment `folder` does, and return True; False: that has to
    be executed instead. Call it in a confined process: the content of the folder may belong to another user."""
    version = ".".join(map(str, sys.version_info[:2]))
    packages = os.path.join(folder, "lib", f"python{version}", "site-packages")
    try:
        with open(os.path.join(folder, MADE_NAME), encoding="utf-8") as file:
            stands_on = json.load(file)["base"]
        if stands_on != sys.executable or any(map(_may_shadow, os.listdir(packages))):
            return False
    except (OSError, ValueError, KeyError, TypeError):
        return False
    at = next((index for index, path in enumerate(sys.path) if path.endswith("-packages")), len(sys.path))
    sys.path.insert(at, packages)
    sys.executable = os.path.join(folder, "bin", "python")
    sys.prefix = sys.exec_prefix = folder
    importlib.invalidate_caches()
    return True


def _may_shadow(name: str) -> bool:
    """Return True if a package of this name may replace what was imported, or looked for."""
    if name.endswith(".pth"):
        return name != BASE_NAME
    module = name.partition(".")[0]
    return module in sys.modules or module in missing_modules or module in NATIVE_PACKAGES
