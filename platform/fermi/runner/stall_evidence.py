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
from fermi.runner.links import Link
from fermi.runner.pulse import MAIN_SHARE, SHARE, STOPPED, Sample
from fermi.runner.stacks import Frame
from fermi.runner.thread_waits import Waits
from fermi.telemetry import nvidia_smi

APART_SECONDS = 3.0
QUIET = 16 << 10
"""Bytes per second that heartbeats and monitors read and write."""
SWITCHES = 2.0
"""How often in a second an idle main thread may wake up to check whether it can go on; a download does so more often.
"""
_SLEEPS = ("hrtimer_nanosleep", "do_nanosleep")
MOST_TEXT = 64
GPU_SECONDS = 5.0


class Evidence(NamedTuple):
    """Result of one examination. `place`: the main thread's frames, innermost first. `channel`: the kernel function in
    which it waits. `threads`: where the script's other threads are; `ras`: NCCL's report of the job, if it answers.
    `stopped`: what stopped it, if it is stopped. `others`: how often its other processes have come back from a wait;
    None: there are none, or it is unknown."""

    sample: Sample
    activity: Activity
    place: list[Frame]
    links: list[Link]
    channel: str
    threads: Sequence[str] = ()
    ras: Sequence[str] = ()
    waits: Waits = Waits()
    stopped: Mapping[str, Any] | None = None
    others: int | None = None

    def queued(self) -> dict[int, int]:
        """Return by socket the unacknowledged bytes where the peer answers."""
        return {link.inode: link.unacked for link in self.links if not link.retries}


def is_still(before: Evidence, now: Evidence) -> bool:
    """Return True if the rank was idle between the two examinations."""
    passed = now.sample.at - before.sample.at
    same = now.place == before.place and now.sample.pid == before.sample.pid != 0
    if passed < APART_SECONDS or not now.activity.pids or not _is_quiet(before, now, passed) or now.stopped:
        return False
    if children_work(before, now):
        return False
    rests = _rests(before, now, passed)
    if waits_for_peers(now.sample) and now.sample.collectives() == before.sample.collectives():
        return rests or same
    if stacks.take_leave(stacks.short(now.place, "")) and same:
        return True
    page = now.sample.page
    if not same or not rests or (page and page.phase in ("saving", "compiling")):
        return False
    starves = before.activity.busy and now.activity.busy  # wants a processor at every look, and gets none
    if starves or (now.activity.seconds - before.activity.seconds) / passed >= SHARE:
        return False
    return not gpu_computes(now.activity.pids)


def _is_quiet(before: Evidence, now: Evidence, passed: float) -> bool:
    moved = now.activity.read + now.activity.written - before.activity.read - before.activity.written
    return moved <= QUIET * passed and now.queued() == before.queued()


def _rests(before: Evidence, now: Evidence, passed: float) -> bool:
    """Return True if the main thread was idle."""
    if now.sample.state not in ("S", "I"):
        return False
    wakes = (now.sample.switches - before.sample.switches) / passed > SWITCHES
    if wakes and not (now.channel in _SLEEPS and before.channel in _SLEEPS):
        return False
    return (now.sample.main_seconds - before.sample.main_seconds) / passed < MAIN_SHARE


def moves(before: Evidence, now: Evidence) -> bool:
    """Return True if any thread of the rank has come back from a wait between the two examinations, or if that is
    unknown."""
    return now.waits.wakes is None or now.waits.wakes != before.waits.wakes


def children_work(before: Evidence, now: Evidence) -> bool:
    """Return True if processes that the rank started are active, as far as that counts. A rank that trains itself has
    helpers (a DataLoader's workers check every five seconds for work); one that does not is a launcher, and its
    children train."""
    page, passed = now.sample.page, now.sample.at - before.sample.at
    if before.sample.pid != now.sample.pid or (page and (page.step or page.begun or page.world_size)):
        return False
    used = now.activity.seconds - before.activity.seconds - (now.sample.seconds - before.sample.seconds)
    woken = now.others is not None and now.others != before.others
    return woken or (passed > 0 and used / passed >= SHARE)


def waits_for_peers(sample: Sample) -> bool:
    """Return True if it is in a collective of several ranks."""
    return bool(sample.waits and sample.page and len(sample.page.collective.get("ranks") or (0, 0)) > 1)


def is_in_nccl(sample: Sample) -> bool:
    """Return True if it is in a collective of a group that its page names as NCCL's."""
    return bool(sample.waits and sample.page and str(sample.page.collective.get("group", "")).startswith("nccl"))


def waits_in(sample: Sample) -> dict[str, Any]:
    """Return the collective that has not ended, as the rank reports it: `in`, `for` (seconds) and `op`."""
    page = sample.page
    if page is None or not waits_for_peers(sample):
        return {"in": "", "for": 0.0, "op": None}
    said = page.collective
    sizes = said.get("sizes")
    op: dict[str, Any] = {"seq": said.get("seq"), "group": str(said.get("group", ""))[:MOST_TEXT], "sizes": sizes}
    op.update({part: said[part] for part in ("ranks", "name", "root") if part in said})
    name = said.get("op")
    return {
        "in": name[:MOST_TEXT] if isinstance(name, str) and name else "collective",
        "for": round(max(0.0, sample.at - page.collective_at), 1),
        "op": op if isinstance(op["seq"], int) and isinstance(sizes, list) else None,
    }


def stopped_by(sample: Sample, leader: int) -> dict[str, Any] | None:
    """Return the `signal` that stopped a process in state T or t, and its `tracer`; None for other states. The kernel
    keeps no sender of a signal, and reports the signal only to the parent: of `leader`, which this process has started,
    alone."""
    if sample.state not in STOPPED:
        return None
    found: dict[str, Any] = {"pid": sample.pid, "signal": "", "tracer": ""}
    with contextlib.suppress(OSError, ValueError, KeyError):
        if tracer := int(processes.status(sample.pid)["TracerPid"]):
            found["tracer"] = f"{processes.status(tracer)['Name']} ({tracer})"
    with contextlib.suppress(OSError, ValueError, AttributeError):
        if told := os.waitid(os.P_PID, leader, os.WSTOPPED | os.WNOHANG | os.WNOWAIT):
            found["signal"] = signal.Signals(told.si_status).name
    return found


def gpu_computes(pids: Iterable[int]) -> bool:
    """Return True if a GPU that one of these processes has open computes, or if that is unknown."""
    minors = {minor for pid in pids for minor in gpus.indices(pid)}
    if not minors:
        return False
    rows = nvidia_smi.ask(("index", "utilization.gpu"), seconds=GPU_SECONDS) or []
    uses = [nvidia_smi.number(row, "utilization.gpu") for row in rows if nvidia_smi.whole(row, "index") in minors]
    return not uses or any(use is None or use > 0 for use in uses)
