"""Ranks that are still there when their work is over: which of them have nothing left to wait for. Standard library
only, Python 3.9 or later. Of a runner's entries; nothing here ends one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fermi.runner import stacks
from fermi.runner.stillness import never_end

Entry = dict[str, Any]


def note(entries: Sequence[Entry], seconds: Mapping[int, float], moment: float, bound: float) -> bool:
    """Says of each rank since when it has done nothing at all, once that is as long as `bound`; whether that has
    changed. Whether somebody is left for whom it waits, only who knows all nodes can tell. `seconds`: by process, for
    how long it has."""
    before = [entry["still_since"] for entry in entries]
    for entry in entries:
        still = seconds.get(entry["pid"], 0.0) if entry["state"] == "running" else 0.0
        entry["still_since"] = (entry["still_since"] or moment - still) if still >= bound else None
    return before != [entry["still_since"] for entry in entries]


def left_behind(entries: Sequence[Entry], moment: float, bound: float) -> list[Entry]:
    """Where these are all ranks, and those that ended ended well: the others, if they never will. Who hangs where ranks
    take leave of each other does not; of who is still elsewhere, that is known after `bound` seconds."""
    left = [entry for entry in entries if entry["state"] == "running"]
    ended = [entry["ended_at"] for entry in entries if entry["state"] == "exited"]
    take_leave = bool(ended) and all(stacks.leaves(entry["stalled"]) for entry in left)
    never = never_end(ended, [entry["still_since"] for entry in left], moment, bound)
    return left if left and (take_leave or never) else []


def failed(entries: Sequence[Entry]) -> list[Entry]:
    """Those whose script an exception has ended, and that hang in their teardown."""
    running = (entry for entry in entries if entry["state"] == "running")
    return [entry for entry in running if entry["error"] and stacks.leaves(entry["stalled"])]
