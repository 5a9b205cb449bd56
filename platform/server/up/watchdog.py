"""Checks whether processes of the platform are alive, and decides about those that do not answer.

A process that waits for a processor is not blamed: what counts is the time in which it could have answered, which is
the time that passed less the time in which a thread of it was ready to run and did not (proc(5), schedstat). On a
machine with thirty times the work that it can do, a timeout of a minute becomes half an hour. Nor is a process blamed
that is stopped (by SIGSTOP, or a debugger), or whose main thread waits for a disk: no signal would end it.
"""

import os
import socket
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from server.liveness import MAX_MESSAGE_BYTES

MAX_SILENCE_SECONDS = 60.0
"""Seconds without an answer after which a process counts as hanging."""
MAX_STALL_SECONDS = {"web": 120.0, "worker": 600.0}
"""Seconds without progress after which the thread pool counts as hanging: a request takes seconds, a message may take
minutes."""


@dataclass(frozen=True, slots=True)
class ProcessSample:
    """State of a process at one check. `waited`: for each thread, the total seconds for which it was ready to run and
    did not; None where the system cannot tell. `state`: of the main thread, as in proc(5)."""

    state: str
    waited: Mapping[int, float] | None


@dataclass(frozen=True, slots=True)
class WatchdogVerdict:
    """Result of a check. `code`: a code of `fermi.messages`; `ends`: whether the process is to be replaced."""

    code: str
    seconds: int = 0
    ends: bool = True


class Watchdog:
    """Liveness of one process. Until its first answer the process counts as starting."""

    def __init__(self, stalled_s: float) -> None:
        self._stalled_s = stalled_s
        self._answer: bytes | None = None
        self._before: ProcessSample | None = None
        self._silent = self._stalled = 0.0

    def check(self, passed: float, answer: bytes | None, sample: ProcessSample) -> WatchdogVerdict | None:
        """Return a verdict, or None where the process is fine. `passed`: seconds since the last check; `answer`: to the
        request that was sent then, None for none."""
        own = _could_run(passed, self._before, sample)
        self._before = sample
        if sample.state in "Tt":
            return WatchdogVerdict("PROCESS_STOPPED", ends=False)
        if self._answer is None and answer is None:
            return None
        if answer is None:
            self._silent += own
        else:
            self._silent = 0.0
        if answer is None or answer == self._answer:
            self._stalled += own
        else:
            self._stalled = 0.0
        self._answer = answer or self._answer
        if self._silent > MAX_SILENCE_SECONDS:
            return WatchdogVerdict("PROCESS_HUNG", round(self._silent))
        if self._stalled > self._stalled_s:
            return WatchdogVerdict("PROCESS_POOL_HUNG", round(self._stalled))
        return None


def _could_run(passed: float, before: ProcessSample | None, now: ProcessSample) -> float:
    """Return for how many seconds since the last check the process could have answered."""
    if now.waited is None or before is None or before.waited is None or now.state in "DTt":
        return 0.0
    waited = max((seconds - before.waited.get(thread, seconds) for thread, seconds in now.waited.items()), default=0.0)
    return max(0.0, passed - waited)


def sample_process(pid: int) -> ProcessSample:
    """Return the state of a process; of one that has ended, a state that no verdict follows from."""
    try:
        state = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0].decode()
    except OSError:
        return ProcessSample("X", None)
    waited = {}
    with suppress(OSError):
        for thread in os.listdir(f"/proc/{pid}/task"):
            with suppress(OSError, ValueError, IndexError):
                waited[int(thread)] = int(Path(f"/proc/{pid}/task/{thread}/schedstat").read_text("ascii").split()[1])
    return ProcessSample(state, {thread: nanoseconds / 1e9 for thread, nanoseconds in waited.items()} or None)


def query_process(line: socket.socket) -> bytes | None:
    """Send a new request and return the last answer to earlier ones; None where there is none."""
    answer = None
    with suppress(OSError):
        while said := line.recv(MAX_MESSAGE_BYTES, socket.MSG_DONTWAIT):
            answer = said
    with suppress(OSError):
        line.send(b"?", socket.MSG_DONTWAIT)
    return answer
