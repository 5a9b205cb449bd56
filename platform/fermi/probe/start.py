"""Starts the probe in a Python process of a rank."""

from __future__ import annotations

import atexit
import os
import threading

from . import imports
from .rank import ProgressWriter
from .shared_page import PULSE_VARIABLE


def start() -> ProgressWriter | None:
    """Start the probe and return its writer, or None if the task has no probe. May raise, and has then changed nothing
    that matters."""
    if PULSE_VARIABLE not in os.environ:
        return None
    page, stacks, *watcher = map(int, os.environ[PULSE_VARIABLE].split(","))
    if not _are_ours(page, stacks):
        if not watcher:
            return None
        # what started this process has closed them; its own are still open
        page, stacks = (os.open(f"/proc/{watcher[0]}/fd/{one}", os.O_RDWR | os.O_APPEND) for one in (page, stacks))
        if not _are_ours(page, stacks):
            return None
    pulse = ProgressWriter(page, stacks)
    if pulse.mine and not watcher:
        os.environ[PULSE_VARIABLE] = f"{page},{stacks},{os.getpid()}"
    os.register_at_fork(after_in_child=pulse.forked)
    try:  # first in line, before threads are waited for; not part of Python's interface
        threading._register_atexit(pulse.ends)  # type: ignore[attr-defined]
    except Exception:
        pass
    atexit.register(pulse.ends)
    imports.watch_imports(pulse)
    return pulse


def _are_ours(*descriptors: int) -> bool:
    try:
        return all(os.readlink(f"/proc/self/fd/{one}").startswith("/memfd:fermi-") for one in descriptors)
    except OSError:
        pass
    return False
