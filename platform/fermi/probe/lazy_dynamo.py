"""Puts off the import of torch's compiler until something compiles, where the plan says that a trainer of ours trains
(`FERMI_COMPILER=later`). Every optimizer and DistributedDataParallel bring it along, and to a script that never
compiles it is more than a second of waiting.

Until then `torch._dynamo` is a module that has what they ask of it, and whatever else is asked of it brings the real
one. What they ask for, as of torch 2.13:

  graph_break                   torch/optim/optimizer.py: does nothing outside of a compiler
  disable                       torch/_compile.py: changes nothing outside of one; what it got until then, the real one
                                gets
  utils.get_optimize_ddp_mode   torch/nn/parallel/distributed.py: what torch/_dynamo/config.py has, which nobody can
                                have set before the real one was there
  trace_rules.clear_lru_cache   torch/distributed/distributed_c10d.py: nothing is in it yet

Not in other programs: with it, 4 of 41 scripts of two ranks that end their process group before they let go of their
model hung there. The model's reducer then ends the group while it has the interpreter's lock, and waits for Gloo's
thread, which may be waiting for the lock. Our trainer lets go of its model first.
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

    from fermi.probe.rank import Pulse

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
        self.utils = Part(self, "utils", get_optimize_ddp_mode=lambda: "ddp_optimizer")
        self.trace_rules = Part(self, "trace_rules", clear_lru_cache=lambda: None)

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


class Part:
    """One of its modules. `meanwhile`: what of it can be had without the real one."""

    def __init__(self, whole: Later, name: str, **meanwhile: Callable[[], Any]) -> None:
        self._whole, self._name, self._meanwhile = whole, name, meanwhile

    def __getattr__(self, name: str) -> Any:
        if name in self._meanwhile and sys.modules.get(NAME) is self._whole:
            return self._meanwhile[name]
        return getattr(getattr(self._whole.real(), self._name), name)
