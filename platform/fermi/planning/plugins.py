"""The registry of frameworks and engines: one line each. Modules are imported on use; an import error is raised."""

from collections.abc import Mapping
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import Any, cast

from fermi import messages
from fermi.diagnosis import rules
from fermi.engines.base import Backend, Check, Discovery
from fermi.engines.environments import Hosting
from fermi.frameworks.base import Framework, Planner
from fermi.jobs import causes as general
from fermi.jobs.errors import UnknownName
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

DEFAULT = "pytorch-ddp"
"""The framework of a request that names none."""

BACKENDS = {
    "local": "fermi.engines.local",
    "kubernetes": "fermi.engines.kubernetes",
    "slurm": "fermi.engines.slurm",
    "agent": "fermi.engines.agent",
}

messages.bring(FRAMEWORKS, STAGES, BACKENDS)
messages.bring_files(rules.FOLDER)


def framework(name: str) -> Framework:
    """Return a framework by name or alias. Raises UnknownNameError (FRAMEWORK_UNKNOWN) with the known names, and
    TypeError for a module that is not a framework."""
    name = framework_name(name)
    return _framework(name, _load("FRAMEWORK_UNKNOWN", FRAMEWORKS, name))


def frameworks() -> list[Framework]:
    return [framework(name) for name in FRAMEWORKS]


def stacks() -> list[str]:
    """Return the libraries that models of any framework are written in."""
    return list(dict.fromkeys(each.info.stack for each in frameworks()))


def libraries() -> list[str]:
    """Return the stacks, and what else frameworks need on each node."""
    return list(dict.fromkeys([*stacks(), *(name for each in frameworks() for name in each.info.packages)]))


def stack(name: str) -> str:
    """Return the library of a framework's models; the default framework's for an unknown name."""
    return framework(name if framework_name(name) in FRAMEWORKS else DEFAULT).info.stack


def planner(name: str) -> Planner:
    """Return what plans a stored task: its framework, or a stage."""
    return cast(Planner, import_module(STAGES[name])) if name in STAGES else framework(name)


def framework_name(name: str) -> str:
    """Return the name of a framework that may be given by an alias; unknown names unchanged."""
    return ALIASES.get(name, name)


def aliases(framework: str) -> list[str]:
    return [alias for alias, name in ALIASES.items() if name == framework]


def backend(name: str, connection: dict[str, Any]) -> Backend:
    """Return the engine of a connection. Raises UnknownNameError (BACKEND_UNKNOWN). The same connection gives the same
    object within a process."""
    return cast(Backend, _load("BACKEND_UNKNOWN", BACKENDS, name).connect(connection))


def check(name: str) -> Check:
    """Return the checks of an engine. Raises UnknownNameError (BACKEND_UNKNOWN)."""
    return Check.of(_part(name, "check"))


def discovery(name: str) -> Discovery | None:
    """Return what finds environments of an engine; None where they are only registered by hand. Raises UnknownNameError
    (BACKEND_UNKNOWN)."""
    return cast(Discovery | None, _part(name, "discover"))


def hosting(name: str, connection: dict[str, Any]) -> Hosting | None:
    """Return what makes dev environments on an engine; None where it cannot. Raises UnknownNameError
    (BACKEND_UNKNOWN)."""
    part = _part(name, "environments")
    return cast(Hosting, part.connect(connection)) if part else None


def makes_environments(name: str) -> bool:
    """Return whether the engine can make environments, without connecting to it. Raises UnknownNameError
    (BACKEND_UNKNOWN)."""
    return _part(name, "environments") is not None


def causes(name: str) -> Mapping[str, Cause]:
    """Return by code what is declared of the causes that an engine may give: its own and the general ones. The general
    ones alone where there is no such engine (any more)."""
    return _causes(BACKENDS[name]) if name in BACKENDS else general.CAUSES


@cache
def _framework(name: str, module: ModuleType) -> Framework:
    return Framework(name, module)


@cache
def _causes(package: str) -> Mapping[str, Cause]:
    module = f"{package}.causes"
    return {**general.CAUSES, **(import_module(module).CAUSES if find_spec(module) else {})}


def _part(backend: str, part: str) -> ModuleType | None:
    package = _load("BACKEND_UNKNOWN", BACKENDS, backend).__name__
    return import_module(f"{package}.{part}") if find_spec(f"{package}.{part}") else None


def _load(code: str, table: dict[str, str], name: str) -> ModuleType:
    if name not in table:
        near = suggestions.name(name, [*table, *ALIASES] if table is FRAMEWORKS else table)
        raise UnknownName(code, found=name, allowed=", ".join(sorted(table)), nearest=near)
    return import_module(table[name])
