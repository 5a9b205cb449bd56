"""Decides whether a rank that does not advance does anything, by comparing two examinations some seconds apart.
Standard library only, Python 3.9 or later.

A rank is idle if its main thread neither computes nor changes its place, and its processes neither compute, read,
write, nor send. In a collective it is idle while none ends, though it may spin there (NCCL does); in a group of its own
alone it waits for no peer, but for its GPU. A rank that saves or compiles never is idle. What cannot be read counts as
activity.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from fermi.runner import gpus, processes, stacks
from fermi.runner.activity import Activity
from fermi.runner.links import TcpConnection
from fermi.runner.pulse import MIN_CPU_SHARE, MIN_MAIN_CPU_SHARE, STOPPED_STATES, RankSample
from fermi.runner.stacks import StackFrame
from fermi.runner.thread_waits import ThreadWaits
from fermi.telemetry import nvidia_smi

MIN_GAP_SECONDS = 3.0
MAX_IDLE_BYTES_PER_SECOND = 16 << 10
"""Bytes per second that heartbeats and monitors read and write."""
MAX_IDLE_WAKEUPS_PER_SECOND = 2.0
"""How often in a second an idle main thread may wake up to check whether it can go on; a download does so more often.
"""
_SLEEP_CHANNELS = ("hrtimer_nanosleep", "do_nanosleep")
MAX_TEXT_LENGTH = 64
SMI_TIMEOUT_SECONDS = 5.0


class StallEvidence(NamedTuple):
    """Result of one examination. `stack`: the main thread's frames, innermost first. `channel`: the kernel function in
    which it waits. `threads`: where the script's other threads are; `ras`: NCCL's report of the job, if it answers.
    `stopped`: what stopped it, if it is stopped. `others`: how often its other processes have come back from a wait;
    None: there are none, or it is unknown."""

    sample: RankSample
    activity: Activity
    stack: list[StackFrame]
    links: list[TcpConnection]
    channel: str
    threads: Sequence[str] = ()
    ras: Sequence[str] = ()
    waits: ThreadWaits = ThreadWaits()
    stopped: Mapping[str, Any] | None = None
    others: int | None = None

    def queued(self) -> dict[int, int]:
        """Return by socket the unacknowledged bytes where the peer answers."""
        return {link.inode: link.unacked for link in self.links if not link.retries}


def is_idle(before: StallEvidence, after: StallEvidence) -> bool:
    """Return True if the rank was idle between the two examinations."""
    passed = after.sample.at - before.sample.at
    same = after.stack == before.stack and after.sample.pid == before.sample.pid != 0
    if passed < MIN_GAP_SECONDS or not after.activity.pids or not _has_no_io(before, after, passed) or after.stopped:
        return False
    if has_working_children(before, after):
        return False
    rests = _is_main_thread_idle(before, after, passed)
    if is_waiting_for_peers(after.sample) and after.sample.collectives() == before.sample.collectives():
        return rests or same
    if stacks.has_shutdown_frame(stacks.format_frames(after.stack, "")) and same:
        return True
    page = after.sample.page
    if not same or not rests or (page and page.phase in ("saving", "compiling")):
        return False
    starves = before.activity.busy and after.activity.busy  # wants a processor at every look, and gets none
    if starves or (after.activity.seconds - before.activity.seconds) / passed >= MIN_CPU_SHARE:
        return False
    return not is_gpu_busy(after.activity.pids)


def _has_no_io(before: StallEvidence, now: StallEvidence, passed: float) -> bool:
    moved = now.activity.read + now.activity.written - before.activity.read - before.activity.written
    return moved <= MAX_IDLE_BYTES_PER_SECOND * passed and now.queued() == before.queued()


def _is_main_thread_idle(before: StallEvidence, now: StallEvidence, passed: float) -> bool:
    """Return True if the main thread was idle."""
    if now.sample.state not in ("S", "I"):
        return False
    wakes = (now.sample.switches - before.sample.switches) / passed > MAX_IDLE_WAKEUPS_PER_SECOND
    if wakes and not (now.channel in _SLEEP_CHANNELS and before.channel in _SLEEP_CHANNELS):
        return False
    return (now.sample.main_seconds - before.sample.main_seconds) / passed < MIN_MAIN_CPU_SHARE


def has_moved(before: StallEvidence, after: StallEvidence) -> bool:
    """Return True if any thread of the rank has come back from a wait between the two examinations, or if that is
    unknown."""
    return after.waits.wakes is None or after.waits.wakes != before.waits.wakes


def has_working_children(before: StallEvidence, after: StallEvidence) -> bool:
    """Return True if processes that the rank started are active, as far as that counts. A rank that trains itself has
    helpers (a DataLoader's workers check every five seconds for work); one that does not is a launcher, and its
    children train."""
    page, passed = after.sample.page, after.sample.at - before.sample.at
    if before.sample.pid != after.sample.pid or (page and (page.step or page.begun or page.world_size)):
        return False
    used = after.activity.seconds - before.activity.seconds - (after.sample.seconds - before.sample.seconds)
    woken = after.others is not None and after.others != before.others
    return woken or (passed > 0 and used / passed >= MIN_CPU_SHARE)


def is_waiting_for_peers(sample: RankSample) -> bool:
    """Return True if it is in a collective of several ranks."""
    return bool(sample.waits and sample.page and len(sample.page.collective.get("ranks") or (0, 0)) > 1)


def is_in_nccl(sample: RankSample) -> bool:
    """Return True if it is in a collective of a group that its page names as NCCL's."""
    return bool(sample.waits and sample.page and str(sample.page.collective.get("group", "")).startswith("nccl"))


def describe_collective(sample: RankSample) -> dict[str, Any]:
    """Return the collective that has not ended, as the rank reports it: `in`, `for` (seconds) and `op`."""
    page = sample.page
    if page is None or not is_waiting_for_peers(sample):
        return {"in": "", "for": 0.0, "op": None}
    said = page.collective
    sizes = said.get("sizes")
    op: dict[str, Any] = {"seq": said.get("seq"), "group": str(said.get("group", ""))[:MAX_TEXT_LENGTH], "sizes": sizes}
    op.update({part: said[part] for part in ("ranks", "name", "root") if part in said})
    name = said.get("op")
    return {
        "in": name[:MAX_TEXT_LENGTH] if isinstance(name, str) and name else "collective",
        "for": round(max(0.0, sample.at - page.collective_at), 1),
        "op": op if isinstance(op["seq"], int) and isinstance(sizes, list) else None,
    }


def describe_stop(sample: RankSample, leader: int) -> dict[str, Any] | None:
    """Return the `signal` that stopped a process in state T or t, and its `tracer`; None for other states. The kernel
    keeps no sender of a signal, and reports the signal only to the parent: of `leader`, which this process has started,
    alone."""
    if sample.state not in STOPPED_STATES:
        return None
    found: dict[str, Any] = {"pid": sample.pid, "signal": "", "tracer": ""}
    with contextlib.suppress(OSError, ValueError, KeyError):
        if tracer := int(processes.read_status_fields(sample.pid)["TracerPid"]):
            found["tracer"] = f"{processes.read_status_fields(tracer)['Name']} ({tracer})"
    with contextlib.suppress(OSError, ValueError, AttributeError):
        if told := os.waitid(os.P_PID, leader, os.WSTOPPED | os.WNOHANG | os.WNOWAIT):
            found["signal"] = signal.Signals(told.si_status).name
    return found


def is_gpu_busy(pids: Iterable[int]) -> bool:
    """Return True if a GPU that one of these processes has open computes, or if that is unknown."""
    minors = {minor for pid in pids for minor in gpus.list_open_gpus(pid)}
    if not minors:
        return False
    rows = nvidia_smi.run_query(("index", "utilization.gpu"), seconds=SMI_TIMEOUT_SECONDS) or []
    uses = [nvidia_smi.get_number(row, "utilization.gpu") for row in rows if nvidia_smi.get_int(row, "index") in minors]
    return not uses or any(use is None or use > 0 for use in uses)
