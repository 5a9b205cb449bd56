"""Collects what an environment has, as far as a program inside of it can see. Standard library only, Python 3.9 or
later.

    {"parts": ["interpreters", "container"]}       cheap, and the default
    {"parts": ["packages"], "python": "", "imports": ["torch"]}    of one interpreter: a path, a kernel's name, or the
                                                   default; see `interpreters.py` and `installed.py`
    {"parts": ["holders"]}                         processes that hold memory: the GPUs', and that of notebooks

Each part has its own key in the answer; `interpreter` is the default one of `interpreters`.
"""

from __future__ import annotations

import os
import platform
import sys
from typing import Any

from fermi.inside import container, container_life, interpreters, memory_holders, packages, protocol, user_processes

DEFAULT_PARTS = ("interpreters", "container")
PARTS = (*DEFAULT_PARTS, "packages", "holders")


def collect_survey(home: str, request: dict[str, Any]) -> dict[str, Any]:
    """Return the requested parts. Imports nothing of the training stack. Raises InsideRefusedError if a named kernel or
    interpreter does not exist, or cannot be run."""
    parts = request.get("parts", DEFAULT_PARTS)
    told: dict[str, Any] = {
        "home": home,
        "python": sys.executable,
        "version": platform.python_version(),
        "user": os.getuid(),
        "host": platform.node(),
        "cwd": os.getcwd(),
        "life": container_life.read_container_life(),
    }
    own = user_processes.list_own_processes()
    if "container" in parts:
        told["container"] = container.describe_container(home)
    if "holders" in parts:
        told["holders"] = memory_holders.find_holders(own)
    if "interpreters" not in parts and "packages" not in parts:
        return told
    found = interpreters.find_interpreters(own=own)
    told.update(interpreters=found["interpreters"], interpreter=found["default"])
    if "packages" in parts:
        python = find_interpreter(str(request.get("python") or ""), found)
        told["packages"] = packages.describe_packages(python, [str(name) for name in request.get("imports") or ()])
    return told


def find_interpreter(name: str, found: dict[str, Any]) -> str:
    """Return the interpreter that a path or a kernel's name means. Raises InsideRefusedError if there is none."""
    if python := interpreters.resolve_interpreter(name, found):
        if name and not (python.startswith("/") and os.access(python, os.X_OK)):
            why = "no program is there" if python.startswith("/") else "the path is not absolute"
            raise protocol.InsideRefusedError("INSIDE_PYTHON_UNUSABLE", python=python, why=why)
        return python
    kernels = [name for one in found["interpreters"] for name in one["kernels"]]
    raise protocol.InsideRefusedError("INSIDE_KERNEL_UNKNOWN", kernel=name, known=", ".join(kernels))
