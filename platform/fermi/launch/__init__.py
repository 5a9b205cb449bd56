"""Finds modules of plug-ins' imports under their former names until the release after 0.1.0: `fermi.launch` became
`fermi.jobs`, `planning`, `frameworks`, `engines`, `scheduler`, `diagnosis`, `preflight`, `export` and `schema`."""

import sys
import warnings
from collections.abc import Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

PACKAGES = {"backends": "engines", "byhand": "export", "schedule": "scheduler"}
MODULES = {
    "environment": "jobs.rank_env", "hosting": "engines.environments", "registry": "planning.plugins",
    "shape": "jobs.json_shape", "shares": "jobs.batch_shares", "stored": "schema.serialization",
}  # fmt: skip
"""Those that have another name now; all others kept theirs."""
FOLDERS = ("jobs", "planning", "schema", "engines")


def current_name(name: str) -> str | None:
    """Return the present name of `fermi.launch.…`; None where there is no such module."""
    first, _, rest = name.removeprefix("fermi.launch.").partition(".")
    current = MODULES[first] if first in MODULES else PACKAGES.get(first, first)
    for place in (current, *(f"{folder}.{first}" for folder in FOLDERS)):
        found = ".".join(part for part in ("fermi", place, rest) if part)
        try:
            import_module(found)
        except ModuleNotFoundError as error:
            if not found.startswith(error.name or " "):
                raise
            continue
        return found
    return None


class _FormerNames(MetaPathFinder, Loader):
    def __init__(self) -> None:
        self._specs: dict[ModuleType, ModuleSpec | None] = {}

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if not fullname.startswith("fermi.launch.") or (name := current_name(fullname)) is None:
            return None
        warnings.warn(f"{fullname} is {name} now; the former name goes with the next release", FutureWarning, 2)
        return ModuleSpec(fullname, self, loader_state=name)

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        module = import_module(str(spec.loader_state))
        self._specs[module] = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Give the module its own spec back; it has been executed under its present name."""
        module.__spec__ = self._specs.pop(module)


sys.meta_path.insert(0, _FormerNames())  # before the finder of files, which would load a module a second time
