"""Measures whether a rank does anything: processor time and bytes written by its processes, from /proc. Standard
library only, Python 3.9 or later.

A rank that waits in a collective for a lost peer sleeps: all its threads do, it writes nothing, and its watchdogs use
hardly any processor time. A rank that prints a traceback, saves a checkpoint or computes is runnable, waits for a disk,
or has used or written something since the last measurement. What cannot be read counts as activity.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterable
from dataclasses import dataclass, field

TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
IDLE_CPU_SHARE = 0.04
"""Seconds of processor time between two marks, and share of the time between them, that count as idle."""
STRICT_IDLE_CPU_SHARE = 0.001
"""The share where certainty is needed: a slow upload is not idle."""
MAX_IDLE_SECONDS = 300.0
"""A rank that is idle for so long after all others have ended well never ends by itself."""
SLEEPING_STATES = b"SItZX"  # states of threads; R and D do something


def will_never_end(
    good_ends: Iterable[float], still_since: Iterable[float | None], moment: float, bound: float
) -> bool:
    """Return True if the ranks that are idle since `still_since` have no peer left to wait for: all others ended with
    0, at `good_ends`, and both are `bound` seconds ago. Unix seconds; clocks of hosts may differ by less than `bound`.
    """
    ends, still = list(good_ends), list(still_since)
    return bool(ends and still) and all(since and moment - max(since, *ends) >= bound for since in still)


@dataclass
class Activity:
    """Activity of all processes of a session and of their children. `seconds` of processor time, bytes `written` and
    `read`; `busy`: a thread runs, or waits for a processor or a disk."""

    seconds: float = 0.0
    written: int = 0
    read: int = 0
    busy: bool = False
    pids: list[int] = field(default_factory=list)


class ActivityTracker:
    """Tracks since when each session (pid of its leader) has been idle, by the monotonic clock."""

    def __init__(self, sessions: Iterable[int], share: float = IDLE_CPU_SHARE) -> None:
        self._share = share
        moment, wanted = time.monotonic(), set(sessions)
        found = measure_activity(wanted)
        self._marks = {session: (moment, found.get(session, Activity())) for session in wanted}

    def seconds(self) -> dict[int, float]:
        """Return for how many seconds each session has been idle. Call it several times within the length that
        matters."""
        moment = time.monotonic()
        looks = measure_activity(self._marks)
        for session, (since, mark) in self._marks.items():
            activity = looks.get(session, Activity(busy=True))
            used = activity.seconds - mark.seconds
            if (
                activity.busy
                or activity.written != mark.written
                or used > IDLE_CPU_SHARE + self._share * (moment - since)
            ):
                self._marks[session] = moment, activity
        return {session: moment - since for session, (since, _) in self._marks.items()}


def measure_activity(sessions: Iterable[int]) -> dict[int, Activity]:
    """Return the activity of each session, without those of which nothing can be read. A process that leads none has
    its descendants."""
    wanted, found = set(sessions), dict[int, Activity]()
    living = dict(_list_processes())
    for pid, fields in living.items():
        session = _find_session(wanted, living, pid)
        if session is not None:
            with contextlib.suppress(FileNotFoundError, ProcessLookupError, PermissionError):
                _add_process(found.setdefault(session, Activity()), pid, fields)
    return found


def _list_processes() -> Iterable[tuple[int, list[bytes]]]:
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(FileNotFoundError, ProcessLookupError, PermissionError):
                yield int(name), read_stat(f"/proc/{name}/stat")


def _find_session(wanted: set[int], living: dict[int, list[bytes]], pid: int) -> int | None:
    """Return the one of `wanted` that the process or one of its ancestors is, or else whose session they are in: a
    child of a rank may lead its own session, and ranks that a launcher has started may be in one together."""
    line = list[int]()
    while pid in living and pid not in line:
        line.append(pid)
        pid = int(living[pid][1])
    sessions = (int(living[one][3]) for one in line)
    return next((one for found in (line, sessions) for one in found if one in wanted), None)


def _add_process(activity: Activity, pid: int, fields: list[bytes]) -> None:
    activity.pids.append(pid)
    activity.seconds += (int(fields[11]) + int(fields[12])) / TICKS_PER_SECOND
    try:
        with open(f"/proc/{pid}/io", encoding="ascii") as file:
            read, written = (int(file.readline().split()[1]) for _ in range(2))
        activity.read, activity.written = activity.read + read, activity.written + written
        activity.busy |= any(
            read_stat(f"/proc/{pid}/task/{thread}/stat")[0] not in SLEEPING_STATES
            for thread in os.listdir(f"/proc/{pid}/task")
        )
    except (PermissionError, IndexError, ValueError):
        activity.busy = True


def read_stat(path: str) -> list[bytes]:
    """Return the fields of a file such as /proc/<pid>/stat after the name: state, parent, group, session, … Raises
    OSError."""
    with open(path, "rb") as file:
        return file.read().rpartition(b")")[2].split()
