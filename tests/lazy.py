"""Modules that take seconds to import: collecting tests imports none of them, which tests/conftest.py checks."""

import importlib
from collections.abc import Collection
from importlib.util import find_spec
from pathlib import Path
from typing import Any

HEAVY = ("deepspeed", "horovod", "jax", "megatron", "tensorboard", "torch", "transformers", "wandb")


def heavy_modules(loaded: Collection[str]) -> list[str]:
    """Return those of HEAVY that are loaded."""
    return [name for name in HEAVY if name in loaded]


class LazyModule:
    """Stands for a module, which is imported when something of it is first read, set or deleted. Names that begin with
    an underscore are not looked up: pytest asks each object of a test's module for some."""

    def __init__(self, name: str) -> None:
        self.__dict__["_name"] = name

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(importlib.import_module(self._name), name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(importlib.import_module(self._name), name, value)

    def __delattr__(self, name: str) -> None:
        delattr(importlib.import_module(self._name), name)


def lazy_import(name: str) -> Any:
    """Return a stand-in for the module `name`."""
    return LazyModule(name)


def module_path(name: str) -> Path:
    """Return the file of the module `name`, which is not imported."""
    spec = find_spec(name)
    assert spec, name
    assert spec.origin, name
    return Path(spec.origin)
