"""Gives plug-ins of others what adding-a-framework.md and adding-a-backend.md named before the release after 0.1.0,
under those names: `fermi.launch` became `fermi.jobs`, `planning`, `frameworks`, `engines` and others."""

import sys
import warnings
from collections.abc import Mapping, Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import MappingProxyType, ModuleType

PREFIX = "fermi.launch."
MODULES = {
    "backends": "engines",
    "backends.reported": "engines.runner_reports",
    "causes": "jobs.causes",
    "endings": "engines.certificates",
    "errors": "jobs.errors",
    "frameworks": "frameworks",
    "frameworks._plans": "frameworks._planning",
    "hosting": "engines.environments",
    "options": "jobs.options",
    "recipes": "jobs.recipes",
    "registry": "planning.plugins",
    "spec": "jobs.spec",
}
"""Former module -> present one; what is below a package keeps its name unless it stands here itself."""
NAMES: Mapping[str, Mapping[str, str]] = {
    "engines.base": {"Beside": "RankExec", "Remote": "RemoteBackend", "not_running": "build_rank_not_running_error"},
    "engines.environments": {"Hosting": "EnvironmentBackend", "HostedSpec": "EnvironmentSpec"},
    "engines.logfiles": {"chunk": "read_chunk"},
    "engines.runner_reports": {"read": "read_report"},
    "frameworks._planning": {"gang": "build_plan"},
    "jobs.causes": {"ALWAYS": "ALWAYS_FREE", "declared": "declare_causes"},
    "jobs.options": {"problems": "find_problems", "schema": "build_schema"},
    "jobs.recipes": {"command": "build_command", "own_script_only": "require_own_script"},
    "jobs.spec": {"PulseSeen": "RankProgress", "RankSeen": "RankStatus", "Way": "RunLocation"},
}
"""Present module -> former names of what it defines."""


def find_present_name(former: str) -> str | None:
    """Return the present name of `fermi.launch.…`, without `fermi.`; None where no plug-in was told of it."""
    parts = former.removeprefix(PREFIX).split(".")
    for length in range(len(parts), 0, -1):
        if present := MODULES.get(".".join(parts[:length])):
            return ".".join((present, *parts[length:]))
    return None


class _FormerNames(MetaPathFinder, Loader):
    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        present = find_present_name(fullname) if fullname.startswith(PREFIX) else None
        if present is None:
            return None
        package = present in MODULES.values() and hasattr(import_module(f"fermi.{present}"), "__path__")
        return ModuleSpec(fullname, self, loader_state=present, is_package=package)

    def exec_module(self, module: ModuleType) -> None:
        """Answer for the present module. Raises ModuleNotFoundError where there is none."""
        assert module.__spec__
        present = str(module.__spec__.loader_state)
        source, renamed = import_module(f"fermi.{present}"), NAMES.get(present, MappingProxyType({}))
        warnings.warn(
            f"{module.__name__} is fermi.{present} now; this name goes with the next release", FutureWarning, 2
        )

        def get_attribute(name: str) -> object:
            if f"{present}.{name}" in NAMES:
                raise AttributeError(name)  # a module with former names: it is imported through this finder
            return getattr(source, renamed.get(name, name))

        module.__getattr__ = get_attribute  # type: ignore[method-assign]


sys.meta_path.insert(0, _FormerNames())
