"""The registry of frameworks and engines: one line each. Modules are imported on use; an import error is raised."""

from collections.abc import Mapping
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import Any, cast

from fermi import messages
from fermi.diagnosis import rules
from fermi.engines.base import Backend, BackendCheck, DiscoveryModule
from fermi.engines.environments import EnvironmentBackend
from fermi.frameworks.base import Framework, Planner
from fermi.jobs import causes as general
from fermi.jobs.errors import UnknownNameError
from fermi.jobs.spec import Cause
from fermi.schema import suggestions

FRAMEWORKS = {
    "pytorch-ddp": "fermi.frameworks.ddp",
    "pytorch-fsdp": "fermi.frameworks.fsdp",
    "deepspeed": "fermi.frameworks.deepspeed",
    "horovod": "fermi.frameworks.horovod",
    "megatron-deepspeed": "fermi.frameworks.megatron_deepspeed",
    "megatron-lm": "fermi.frameworks.megatron",
    "jax": "fermi.frameworks.jax",
}
"""Name in the API -> module."""

STAGES = {"preflight": "fermi.preflight"}
"""What the platform itself runs beside training: planned as a framework is, and never offered as one."""

ALIASES = {"ddp": "pytorch-ddp", "fsdp": "pytorch-fsdp", "megatron": "megatron-lm", "single": "pytorch-ddp"}

DEFAULT_FRAMEWORK = "pytorch-ddp"
"""The framework of a request that names none."""

BACKENDS = {
    "local": "fermi.engines.local",
    "kubernetes": "fermi.engines.kubernetes",
    "slurm": "fermi.engines.slurm",
    "agent": "fermi.engines.agent",
}

messages.register_modules(FRAMEWORKS, STAGES, BACKENDS)
messages.register_folder(rules.FOLDER)
messages.register_folder(rules.FOLDER.parent)


def get_framework(name: str) -> Framework:
    """Return a framework by name or alias. Raises UnknownNameError (FRAMEWORK_UNKNOWN) with the known names, and
    TypeError for a module that is not a framework."""
    name = resolve_framework_name(name)
    return _load_framework(name, _load_module("FRAMEWORK_UNKNOWN", FRAMEWORKS, name))


def list_frameworks() -> list[Framework]:
    return [get_framework(name) for name in FRAMEWORKS]


def list_stacks() -> list[str]:
    """Return the libraries that models of any framework are written in."""
    return list(dict.fromkeys(each.info.stack for each in list_frameworks()))


def list_libraries() -> list[str]:
    """Return the stacks, and what else frameworks need on each node."""
    return list(dict.fromkeys([*list_stacks(), *(name for each in list_frameworks() for name in each.info.packages)]))


def get_stack(name: str) -> str:
    """Return the library of a framework's models; the default framework's for an unknown name."""
    return get_framework(name if resolve_framework_name(name) in FRAMEWORKS else DEFAULT_FRAMEWORK).info.stack


def get_planner(name: str) -> Planner:
    """Return what plans a stored task: its framework, or a stage."""
    return cast(Planner, import_module(STAGES[name])) if name in STAGES else get_framework(name)


def resolve_framework_name(name: str) -> str:
    """Return the name of a framework that may be given by an alias; unknown names unchanged."""
    return ALIASES.get(name, name)


def list_aliases(framework: str) -> list[str]:
    return [alias for alias, name in ALIASES.items() if name == framework]


def get_backend(name: str, connection: dict[str, Any]) -> Backend:
    """Return the engine of a connection. Raises UnknownNameError (BACKEND_UNKNOWN). The same connection gives the same
    object within a process."""
    return cast(Backend, _load_module("BACKEND_UNKNOWN", BACKENDS, name).connect(connection))


def get_check(name: str) -> BackendCheck:
    """Return the checks of an engine. Raises UnknownNameError (BACKEND_UNKNOWN)."""
    return BackendCheck.from_module(_load_part(name, "check"))


def get_discovery(name: str) -> DiscoveryModule | None:
    """Return what finds environments of an engine; None where they are only registered by hand. Raises UnknownNameError
    (BACKEND_UNKNOWN)."""
    return cast(DiscoveryModule | None, _load_part(name, "discover"))


def get_environment_backend(name: str, connection: dict[str, Any]) -> EnvironmentBackend | None:
    """Return what makes dev environments on an engine; None where it cannot. Raises UnknownNameError
    (BACKEND_UNKNOWN)."""
    part = _load_part(name, "environments")
    return cast(EnvironmentBackend, part.connect(connection)) if part else None


def can_make_environments(name: str) -> bool:
    """Return whether the engine can make environments, without connecting to it. Raises UnknownNameError
    (BACKEND_UNKNOWN)."""
    return _load_part(name, "environments") is not None


def get_causes(name: str) -> Mapping[str, Cause]:
    """Return by code what is declared of the causes that an engine may give: its own and the general ones. The general
    ones alone where there is no such engine (any more)."""
    return _load_causes(BACKENDS[name]) if name in BACKENDS else general.CAUSES


@cache
def _load_framework(name: str, module: ModuleType) -> Framework:
    return Framework(name, module)


@cache
def _load_causes(package: str) -> Mapping[str, Cause]:
    module = f"{package}.causes"
    return {**general.CAUSES, **(import_module(module).CAUSES if find_spec(module) else {})}


def _load_part(backend: str, part: str) -> ModuleType | None:
    package = _load_module("BACKEND_UNKNOWN", BACKENDS, backend).__name__
    return import_module(f"{package}.{part}") if find_spec(f"{package}.{part}") else None


def _load_module(code: str, table: dict[str, str], name: str) -> ModuleType:
    if name not in table:
        near = suggestions.suggest_name(name, [*table, *ALIASES] if table is FRAMEWORKS else table)
        raise UnknownNameError(code, found=name, allowed=", ".join(sorted(table)), nearest=near)
    return import_module(table[name])
