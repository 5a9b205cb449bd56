"""Starts the probe in a Python process of a rank."""

from __future__ import annotations

import atexit
import os
import threading

from . import facts, imports, prompts, records
from .inner_ranks import InnerRanks
from .rank import ProgressWriter
from .shared_page import PULSE_VARIABLE


def start() -> ProgressWriter | None:
    """Start the probe and return its writer, or None if the task has no probe. May raise, and has then changed nothing
    that matters."""
    if PULSE_VARIABLE not in os.environ:
        return None
    page, stacks, queue, holder = map(int, os.environ[PULSE_VARIABLE].split(","))
    ranks = InnerRanks.from_env(os.environ)
    local_rank = ranks.find_local_rank() if ranks else None
    if ranks and local_rank is not None:
        page, stacks, queue = ranks.open_files(local_rank)
    elif not _are_ours(page, stacks, queue):
        # what started this process has closed them; those of the rank's first process are still open
        page, stacks, queue = (
            os.open(f"/proc/{holder}/fd/{one}", os.O_RDWR | os.O_APPEND) for one in (page, stacks, queue)
        )
        if not _are_ours(page, stacks, queue):
            return None
    pulse = ProgressWriter(page, stacks, queue, ranks, local_rank)
    os.register_at_fork(after_in_child=pulse.forked)
    records.open_queue(queue)
    os.register_at_fork(after_in_child=records.forked)
    atexit.register(records.flush)
    facts.report()
    try:  # first in line, before threads are waited for; not part of Python's interface
        threading._register_atexit(pulse.ends)  # type: ignore[attr-defined]
    except Exception:
        pass
    atexit.register(pulse.ends)
    try:
        prompts.watch_prompts()
    except Exception:
        pass
    imports.watch_imports(pulse)
    return pulse


def _are_ours(*descriptors: int) -> bool:
    try:
        return all(os.readlink(f"/proc/self/fd/{one}").startswith("/memfd:fermi-") for one in descriptors)
    except OSError:
        pass
    return False
