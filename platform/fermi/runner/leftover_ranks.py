"""Finds ranks that still run though their work is over, and programs that still run though their rank has ended. Works
on a runner's entries and ends no process. Standard library only, Python 3.9 or later."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from fermi.runner import processes, stacks
from fermi.runner.activity import will_never_end

RankEntry = dict[str, Any]

HELPER_PROGRAMS = ("multiprocessing.resource_tracker", "multiprocessing.forkserver",
           "multiprocessing.semaphore_tracker", "compile_worker", "wandb", "tensorboard")  # fmt: skip
"""Parts of command lines of processes that libraries start for themselves, and that end later than the process they
serve."""
MAX_COMMAND_LENGTH = 300


def record_idle_ranks(entries: Sequence[RankEntry], seconds: Mapping[int, float], now: float, bound: float) -> bool:
    """Record for each rank since when it has been idle, once that is as long as `bound` seconds. Return True if that
    has changed. Whether it waits for another rank is only known with all nodes. `seconds`: idle time by process."""
    before = [entry["still_since"] for entry in entries]
    for entry in entries:
        still = seconds.get(entry["pid"], 0.0) if entry["state"] == "running" else 0.0
        entry["still_since"] = (entry["still_since"] or now - still) if still >= bound else None
    return before != [entry["still_since"] for entry in entries]


def find_stuck_ranks(entries: Sequence[RankEntry], now: float, bound: float) -> list[RankEntry]:
    """Return the ranks that will never end, given that `entries` are all ranks: those that hang while ranks shut down,
    at once, and those that are idle after the others ended well, after `bound` seconds."""
    left = [entry for entry in entries if entry["state"] == "running"]
    ended = [entry["ended_at"] for entry in entries if entry["state"] == "exited"]
    take_leave = bool(ended) and all(stacks.is_hanging_in_shutdown(entry["stalled"]) for entry in left)
    never = will_never_end(ended, [entry["still_since"] for entry in left], now, bound)
    return left if left and (take_leave or never) else []


def find_hanging_failures(entries: Sequence[RankEntry]) -> list[RankEntry]:
    """Return the ranks whose script ended with an exception and that hang in their teardown."""
    running = (entry for entry in entries if entry["state"] == "running")
    return [entry for entry in running if entry["error"] and stacks.is_hanging_in_shutdown(entry["stalled"])]


def record_leftover_programs(entries: Sequence[RankEntry], command: Sequence[str]) -> None:
    """Record on ranks that ended well which Python programs they left running: a script that starts its training in the
    background is over before it has begun. `command`: the ranks' own, by which forks are recognized; forks count only
    if they lead a session, as daemons do."""
    ended = {entry["rank"]: entry for entry in entries if entry["exit_code"] == 0 and not entry["asked"]}
    if len(ended) < len(entries):
        return
    ours = processes.read_words(os.getpid(), "cmdline")
    for pid, fields in processes.list_descendants().items():
        words = processes.read_words(pid, "cmdline")
        text = " ".join(words)
        is_fork = words in (ours, list(command)) and int(fields[3]) != pid
        if not words or not os.path.basename(words[0]).startswith("python") or is_fork or _is_helper(text):
            continue
        entry = ended.get(_read_rank(pid)) or entries[0]
        left = (entry["kill"] or {}).get("processes", 0) + 1
        entry["kill"] = {"by": LEFTOVER, "processes": left, "line": text[:MAX_COMMAND_LENGTH]}


LEFTOVER = "left"
"""The `by` of a rank's `kill` if its runner ended a program that it left running."""


def _is_helper(text: str) -> bool:
    return any(name in text for name in HELPER_PROGRAMS)


def _read_rank(pid: int) -> int:
    """Return the rank in whose environment the process was started; -1: unknown, or not readable."""
    found = next((word[5:] for word in processes.read_words(pid, "environ") if word.startswith("RANK=")), "")
    return int(found) if found.isdecimal() else -1
