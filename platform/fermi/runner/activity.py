"""Whether a rank does anything: what its processes have used of the processor and written, from /proc. Standard library
only, Python 3.9 or later.

A rank that waits in a collective for a peer that is gone sleeps: all its threads do, it writes nothing, and what its
watchdogs use of the processor is next to nothing. One that prints a traceback, saves a checkpoint or computes is
runnable, waits for a disk, or has used or written something since the last look. What cannot be read counts as doing
something.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterable
from dataclasses import dataclass, field

TICKS = os.sysconf("SC_CLK_TCK")
WATCHDOGS = 0.04
"""Seconds of processor time between two marks, and the share of the time between them, that count as nothing."""
NEVER = 0.001
"""The share for whom it must be certain: what uploads slowly is not still."""
LAST_SECONDS = 300.0
"""Who does nothing at all for so long, after all others have ended well, never ends by itself."""
SLEEPS = b"SItZX"  # states of threads; R and D do something


def never_end(good_ends: Iterable[float], still_since: Iterable[float | None], moment: float, bound: float) -> bool:
    """Whether ranks that are still since then have nobody left to wait for: all others ended with 0, at `good_ends`,
    and that too is long ago. In unix seconds; hosts' clocks may differ by less than `bound`."""
    ends, still = list(good_ends), list(still_since)
    return bool(ends and still) and all(since and moment - max(since, *ends) >= bound for since in still)


@dataclass
class Activity:
    """Of all processes of a session, and of those that they have started. `busy`: a thread runs, or waits for a
    processor or a disk."""

    seconds: float = 0.0
    written: int = 0
    read: int = 0
    busy: bool = False
    pids: list[int] = field(default_factory=list)


class Stillness:
    """Since when each of the sessions (process ids of their leaders) has done nothing, by the monotonic clock."""

    def __init__(self, sessions: Iterable[int], share: float = WATCHDOGS) -> None:
        self._share = share
        moment, wanted = time.monotonic(), set(sessions)
        found = look(wanted)
        self._marks = {session: (moment, found.get(session, Activity())) for session in wanted}

    def seconds(self) -> dict[int, float]:
        """How long each has been still; to be called again and again, several times in the length that matters."""
        moment = time.monotonic()
        looks = look(self._marks)
        for session, (since, mark) in self._marks.items():
            activity = looks.get(session, Activity(busy=True))
            used = activity.seconds - mark.seconds
            if activity.busy or activity.written != mark.written or used > WATCHDOGS + self._share * (moment - since):
                self._marks[session] = moment, activity
        return {session: moment - since for session, (since, _) in self._marks.items()}


def look(sessions: Iterable[int]) -> dict[int, Activity]:
    """Without those of which nothing can be seen."""
    wanted, found = set(sessions), dict[int, Activity]()
    living = dict(_living())
    for pid, fields in living.items():
        session = _session(wanted, living, pid)
        if session is not None:
            with contextlib.suppress(FileNotFoundError, ProcessLookupError, PermissionError):
                _add(found.setdefault(session, Activity()), pid, fields)
    return found


def _living() -> Iterable[tuple[int, list[bytes]]]:
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(FileNotFoundError, ProcessLookupError, PermissionError):
                yield int(name), _stat(f"/proc/{name}/stat")


def _session(wanted: set[int], living: dict[int, list[bytes]], pid: int) -> int | None:
    """That of `wanted` which the process is in, or which one that it stems from is in: what a rank starts may lead a
    session of its own."""
    met = set[int]()
    while pid in living and pid not in met:
        met.add(pid)
        session = int(living[pid][3])
        if session in wanted:
            return session
        pid = int(living[pid][1])
    return None


def _add(activity: Activity, pid: int, fields: list[bytes]) -> None:
    activity.pids.append(pid)
    activity.seconds += (int(fields[11]) + int(fields[12])) / TICKS
    try:
        with open(f"/proc/{pid}/io", encoding="ascii") as file:
            read, written = (int(file.readline().split()[1]) for _ in range(2))
        activity.read, activity.written = activity.read + read, activity.written + written
        activity.busy |= any(
            _stat(f"/proc/{pid}/task/{thread}/stat")[0] not in SLEEPS for thread in os.listdir(f"/proc/{pid}/task")
        )
    except (PermissionError, IndexError, ValueError):
        activity.busy = True


def _stat(path: str) -> list[bytes]:
    with open(path, "rb") as file:
        return file.read().rpartition(b")")[2].split()
