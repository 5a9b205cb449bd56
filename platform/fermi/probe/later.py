"""Puts off the import of torch's compiler until something asks for more of it than optimizers do, where the plan says
that one process trains alone, by a trainer of ours (`FERMI_COMPILER=later`). Every optimizer brings it along, and to a
script that never compiles it is more than a second of waiting.

Until then `torch._dynamo` is a module that has what optimizers ask of it, and whatever else is asked of it brings the
real one. What they ask for, as of torch 2.13:

  graph_break   torch/optim/optimizer.py: does nothing outside of a compiler
  disable       torch/_compile.py: changes nothing outside of one; what it got until then, the real one gets

Not where several train: with it, 2 of 20 scripts that free a model at their end hung there. Its reducer ends the
process group while it has the interpreter's lock, and waits for Gloo's thread, which may be waiting for the lock.
"""

from __future__ import annotations

import os
import sys
import threading
from importlib import import_module
from importlib.machinery import ModuleSpec
from types import ModuleType

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from .rank import Pulse

NAME = "torch._dynamo"
VARIABLE = "FERMI_COMPILER"


def put_off(_: Pulse, __: ModuleType) -> None:
    """Does nothing where it is there already, or where optimizers do without."""
    wanted = os.environ.get(VARIABLE) == "later"
    if wanted and NAME not in sys.modules and hasattr(sys.modules.get("torch._compile"), "_disable_dynamo"):
        sys.modules[NAME] = sys.modules["torch"]._dynamo = Later(NAME)  # type: ignore[attr-defined]


class Later(ModuleType):
    """Brings the real one when more is asked of it than optimizers do."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.__spec__ = ModuleSpec(name, None)  # is looked at by each import
        self.given: list[tuple[Any, bool]] = []
        self.lock = threading.RLock()

    def graph_break(self, *_: Any, **__: Any) -> None:
        """Of no meaning where nothing is compiled."""

    def disable(self, fn: Any = None, recursive: bool = True, **options: Any) -> Any:
        """As `_disable_dynamo` calls it: what comes of it is kept as an attribute of `fn`, and replaced in time."""
        if fn is None or options != {"wrapping": False}:
            return self.real().disable(fn, recursive, **options)
        self.given.append((fn, recursive))
        return fn

    def __getattr__(self, name: str) -> Any:
        return getattr(self.real(), name)

    def __dir__(self) -> list[str]:
        return dir(self.real())

    def real(self) -> Any:
        """Raises what importing it raises."""
        with self.lock:
            if sys.modules.get(NAME) is self:
                torch = sys.modules["torch"]
                del sys.modules[NAME], torch._dynamo
                try:
                    import_module(NAME)
                except BaseException:
                    sys.modules[NAME] = torch._dynamo = self  # type: ignore[attr-defined]
                    raise
                disable: Callable[..., Any] = sys.modules[NAME].disable
                for fn, recursive in self.given:
                    setattr(fn, "__dynamo_disable", disable(fn, recursive, wrapping=False))
                self.given.clear()
        return sys.modules[NAME]
