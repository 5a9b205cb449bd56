"""First on a rank's PYTHONPATH: starts the probe (whatever becomes of that, the rank goes on), then is the
`sitecustomize` that it hides. Any Python reads this, so it is written for all of them."""

import os
import sys


def _begin():  # type: ignore[no-untyped-def]
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [path for path in sys.path if os.path.abspath(path or ".") != here]
    try:
        from importlib import import_module
        from types import ModuleType

        ours = sys.modules["_fermi_probe"] = ModuleType("_fermi_probe")  # a script's own `fermi` is none of ours
        ours.__path__ = [os.path.dirname(here)]
        import_module("_fermi_probe.start").start()
    except Exception:  # an older Python among others: no pulse, then
        pass


_begin()
_this = sys.modules.pop("sitecustomize")
try:
    __import__("sitecustomize")
except ImportError as error:
    if getattr(error, "name", None) != "sitecustomize":
        raise
finally:
    sys.modules.setdefault("sitecustomize", _this)
