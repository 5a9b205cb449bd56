"""Ranks that are still there when their work is over: which of them have nothing left to wait for; and programs that
are still there when their rank is gone. Standard library only, Python 3.9 or later. Of a runner's entries; nothing here
ends one."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from fermi.runner import processes, stacks
from fermi.runner.activity import never_end

Entry = dict[str, Any]

HELPERS = ("multiprocessing.resource_tracker", "multiprocessing.forkserver", "multiprocessing.semaphore_tracker",
           "compile_worker", "wandb", "tensorboard")  # fmt: skip
"""In the command lines of what libraries start for themselves, and end later than the process that they serve."""
MAX_COMMAND = 300


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


def note_left(entries: Sequence[Entry], command: Sequence[str]) -> None:
    """Notes on ranks that ended well which Python programs they left running: a script that puts its training into the
    background is over before it has begun. `command`: the ranks' own, by which forks are known; these count only where
    they lead a session, as daemons do."""
    ended = {entry["rank"]: entry for entry in entries if entry["exit_code"] == 0 and not entry["asked"]}
    if len(ended) < len(entries):
        return
    ours = processes.read_words(os.getpid(), "cmdline")
    for pid, fields in processes.descendants().items():
        words = processes.read_words(pid, "cmdline")
        text = " ".join(words)
        is_fork = words in (ours, list(command)) and int(fields[3]) != pid
        if not words or not os.path.basename(words[0]).startswith("python") or is_fork or _is_helper(text):
            continue
        entry = ended.get(_rank(pid)) or entries[0]
        left = (entry["kill"] or {}).get("processes", 0) + 1
        entry["kill"] = {"by": LEFT, "processes": left, "line": text[:MAX_COMMAND]}


LEFT = "left"
"""What a rank's `kill` says it is by, where its runner ended what it left running."""


def _is_helper(text: str) -> bool:
    return any(name in text for name in HELPERS)


def _rank(pid: int) -> int:
    """Returns the rank in whose environment the process began; -1: not known, or not ours to read."""
    found = next((word[5:] for word in processes.read_words(pid, "environ") if word.startswith("RANK=")), "")
    return int(found) if found.isdecimal() else -1
